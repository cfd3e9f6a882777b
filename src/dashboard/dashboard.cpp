#include "dashboard/dashboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/net/resolve.h"
#include "dashboard/page.h"
#include "dashboard/prometheus.h"
#include "dashboard/state_json.h"

namespace lockstep::dashboard {
namespace {

constexpr std::chrono::milliseconds kLastWords{500};
constexpr int kBacklog = 64;

// The job, as the server serves it.
class JobContent final : public ServedContent {
 public:
  explicit JobContent(std::shared_ptr<JobSampler> job) : job_(std::move(job)), policy_(page_policy(page_html())) {}

  void sample() override {
    job_->sample();
    encoded_.clear();
  }
  std::uint64_t tick() const override { return job_->state().tick; }
  std::shared_ptr<const std::string> state(std::uint64_t since) override {
    // Most viewers have seen the same.
    auto& encoded = encoded_[since];
    if (!encoded) encoded = std::make_shared<const std::string>(state_json(job_->state(), since));
    return encoded;
  }
  std::string metrics() override { return prometheus_text(job_->state()); }
  std::string_view page() const override { return page_html(); }
  std::string_view policy() const override { return policy_; }

 private:
  const std::shared_ptr<JobSampler> job_;
  const std::string policy_;
  std::map<std::uint64_t, std::shared_ptr<const std::string>> encoded_;  // of this sample, by `since`
};

Status wrong(std::string message) { return Status(StatusCode::invalid_argument, std::move(message)); }

Result<SocketAddress> loopback_address(const std::string& place) {
  const auto parsed = parse_host_port(place);
  if (!parsed.ok()) return parsed.status().with_context("--dashboard");
  const auto addresses = resolve(parsed->host, parsed->port);
  if (!addresses.ok()) return addresses.status().with_context("--dashboard");
  if (!std::all_of(addresses->begin(), addresses->end(), [](const auto& one) { return one.is_loopback(); })) {
    return wrong(fmt::format(
        "--dashboard is '{}', which other machines can reach, but the dashboard is not encrypted: serve it at "
        "127.0.0.1 and forward the port, for example with ssh -L {}:127.0.0.1:{} to this host",
        place, parsed->port, parsed->port));
  }
  return addresses->front();
}

Result<UniqueFd> listen_at(const std::string& place) {
  if (!place.empty()) {
    const auto address = loopback_address(place);
    if (!address.ok()) return address.status();
    auto listener = listen_on(*address, kBacklog);
    return listener.ok() ? std::move(listener) : listener.status().with_context("--dashboard");
  }
  auto address = loopback_address(fmt::format("127.0.0.1:{}", Dashboard::kDefaultPort));
  if (!address.ok()) return address.status();
  auto listener = listen_on(*address, kBacklog);
  if (listener.ok() || listener.status().code() != StatusCode::already_exists) return listener;
  address->set_port(0);
  return listen_on(*address, kBacklog);
}

}  // namespace

Dashboard::Dashboard(std::string address, std::shared_ptr<JobSampler> job, std::unique_ptr<HttpServer> server)
    : address_(std::move(address)), job_(std::move(job)), server_(std::move(server)) {}

Result<std::unique_ptr<Dashboard>> Dashboard::start(const std::string& place, JobFacts facts) {
  auto listener = listen_at(place);
  if (!listener.ok()) return listener.status();
  const auto address = local_address(listener->get());
  if (!address.ok()) return address.status();
  auto job = std::make_shared<JobSampler>(std::move(facts));
  auto server = HttpServer::start(*std::move(listener), std::make_unique<JobContent>(job), {});
  if (!server.ok()) return server.status();
  return std::unique_ptr<Dashboard>(new Dashboard(address->to_string(), std::move(job), *std::move(server)));
}

void Dashboard::finish(bool succeeded, const std::string& conclusion) {
  job_->job_ended(succeeded, conclusion);
  server_->finish(kLastWords);
}

}  // namespace lockstep::dashboard
