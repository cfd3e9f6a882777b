#include "doctor/network/host_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>

#include "base/host_name.h"
#include "base/net/resolve.h"
#include "base/start_thread.h"
#include "doctor/network/measure.h"
#include "rendezvous/network_interface.h"
#include "store/tcp/tcp_store.h"

namespace lockstep::doctor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPoll{100};
constexpr seconds kAttempt{2};       // to connect
constexpr seconds kCall{5};          // of a store
constexpr seconds kAfterwards{5};    // how long to try a host that is known to have come
constexpr seconds kMeasurement{10};  // of one link
constexpr seconds kReports{60};
constexpr int kMostThreads = 256;  // they mostly wait

// Keys: KIND/INDEX of the host.
constexpr const char* kPresent = "doctor/present/";
constexpr const char* kReport = "doctor/report/";
constexpr const char* kGone = "doctor/gone/";  // the last will of a host
constexpr const char* kEnd = "doctor/end/";    // it needs the others no longer
constexpr const char* kBusy = "doctor/busy";   // who measures a link of this store's host; empty: none

std::string key(const char* kind, int host) { return fmt::format("{}{}", kind, host); }
Deadline soon() { return Deadline::after(kCall); }
void pause() { std::this_thread::sleep_for(kPoll); }

// One measurement at a time for each host.
bool take_turn(Store& store, const std::string& name, Deadline deadline) {
  while (!deadline.expired()) {
    const auto absent = store.compare_set(kBusy, std::nullopt, name, soon());
    if (absent.ok() && *absent == name) return true;
    const auto free = store.compare_set(kBusy, "", name, soon());
    if (free.ok() && *free == name) return true;
    if (!absent.ok() || !free.ok()) return false;
    pause();
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<HostExchange>> HostExchange::open(ExchangeOptions options) {
  auto own = launch::take_over_endpoint(options.hosts, wanted_interface(), options.secret);
  if (!own.ok()) {
    return own.status().with_context("none of the hosts in --hosts is an address of this host with a free port");
  }
  std::unique_ptr<HostExchange> exchange(new HostExchange(std::move(options), *std::move(own)));
  LOCKSTEP_RETURN_IF_ERROR(exchange->start());
  return exchange;
}

HostExchange::HostExchange(ExchangeOptions options, launch::OwnStore own)
    : options_(std::move(options)), own_(std::move(own)) {}

HostExchange::~HostExchange() = default;

Status HostExchange::start() {
  const auto place = parse_host_port(own_.address);
  if (!place.ok()) return place.status();
  // As a rank chooses its address: LOCKSTEP_INTERFACE, else the interface of the address where hosts meet.
  const std::string wanted = wanted_interface();
  auto address = choose_local_address(wanted.empty() ? place->host : wanted, "");
  if (!address.ok()) return address.status();
  address->set_port(0);
  auto echo =
      EchoServer::start(*address, options_.secret, options_.policy, static_cast<int>(options_.hosts.size()), self());
  if (!echo.ok()) return echo.status();
  echo_ = *std::move(echo);
  auto store = TcpStore::connect(place->host, place->port, options_.secret, soon());
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  presence_ = host_name() + "\n" + echo_->address();
  return store_->set(key(kPresent, self()), presence_, soon());
}

bool HostExchange::is_present(int host) {
  const std::string name = key(kPresent, host);
  const auto found = store_->check(std::span(&name, 1), soon());
  return found.ok() && *found;
}

// What other stores have and ours does not.
void HostExchange::copy(const std::string& prefix) {
  std::vector<std::shared_ptr<Store>> stores;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [host, store] : stores_) stores.push_back(store);
  }
  for (const auto& store : stores) {
    const auto found = store->list(prefix, soon());
    if (!found.ok()) continue;  // it has ended
    for (const auto& [name, value] : *found) static_cast<void>(store_->compare_set(name, std::nullopt, value, soon()));
  }
}

void HostExchange::introduce(int other, const std::shared_ptr<Store>& store) {
  static_cast<void>(store->set(key(kPresent, self()), presence_, soon()));
  static_cast<void>(store->set_last_will(key(kGone, self()), "1", soon()));
  {
    const std::lock_guard lock(mutex_);
    stores_[other] = store;
  }
  copy(kPresent);
}

std::shared_ptr<Store> HostExchange::reach_store(int other, LinkReport& link, Deadline deadline) {
  const HostPort& place = options_.hosts[static_cast<std::size_t>(other)];
  std::optional<Deadline> last;  // once the host is known to have come, its firewall is the cause
  while (!deadline.expired() && !(last && last->expired())) {
    if (!last && is_present(other)) last = Deadline::after(kAfterwards);
    copy(kPresent);
    const auto addresses = resolve(place.host, place.port, deadline);
    if (addresses.ok()) {
      link.endpoint = attempt_to_connect(addresses->front(), deadline.earlier(Deadline::after(kAttempt))).reach;
    }
    if (link.endpoint == Reach::answered) {
      auto store = TcpStore::connect(place.host, place.port, options_.secret, Deadline::after(kAttempt));
      if (store.ok()) return *std::move(store);
      const bool foreign =
          store.status().code() == StatusCode::unauthenticated || store.status().code() == StatusCode::protocol_error;
      link.endpoint = foreign ? Reach::no_secret : Reach::reset;
      if (foreign) return nullptr;
    }
    pause();
  }
  return nullptr;
}

// In the order of the hosts, so that two measurements never wait for each other.
void HostExchange::measure_alone(LinkReport& link, Store& other) {
  const std::string name = fmt::format("{} to {}", link.from, link.to);
  Store& first = link.from < link.to ? *store_ : other;
  Store& second = link.from < link.to ? other : *store_;
  const Deadline turn = Deadline::after(2 * kMeasurement + seconds(2 * options_.hosts.size()));
  // A host that ended in the middle is no reason not to measure the others.
  static_cast<void>(other.set_last_will(kBusy, "", soon()));
  const bool has_first = take_turn(first, name, turn);
  const bool has_second = take_turn(second, name, turn);
  measure_link(link, options_.secret, options_.policy, Deadline::after(kMeasurement));
  if (has_second) static_cast<void>(second.set(kBusy, "", soon()));
  if (has_first) static_cast<void>(first.set(kBusy, "", soon()));
  static_cast<void>(other.withdraw_last_will(kBusy, soon()));
}

LinkReport HostExchange::examine(int other) {
  LinkReport link{.from = self(), .to = other};
  const std::shared_ptr<Store> store = reach_store(other, link, Deadline::after(options_.timeout));
  if (store != nullptr) introduce(other, store);
  // Its ranks may be reachable even if its endpoint is not.
  const auto presence = store_->get(key(kPresent, other), store != nullptr ? soon() : Deadline::after(kPoll));
  if (!presence.ok()) return link;
  link.ranks_address = presence->substr(std::min(presence->find('\n') + 1, presence->size()));
  if (store != nullptr) {
    measure_alone(link, *store);
  } else {
    measure_link(link, options_.secret, options_.policy, Deadline::after(kMeasurement));
  }
  return link;
}

std::vector<LinkReport> HostExchange::measure() {
  const auto count = static_cast<int>(options_.hosts.size());
  std::vector<LinkReport> links(static_cast<std::size_t>(count));
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int other = next++; other < count; other = next++) {
      if (other != self()) links[static_cast<std::size_t>(other)] = examine(other);
    }
  };
  std::vector<std::thread> threads;
  while (static_cast<int>(threads.size()) + 1 < std::min(count - 1, kMostThreads)) {
    auto thread = start_thread("measures links", work);
    if (!thread.ok()) break;  // the others take more time
    threads.push_back(*std::move(thread));
  }
  work();
  for (std::thread& thread : threads) thread.join();
  links.erase(links.begin() + self());
  return links;
}

bool HostExchange::all_have(const std::string& prefix) {
  for (int host = 0; host < static_cast<int>(options_.hosts.size()); ++host) {
    const std::array<std::string, 2> names = {key(prefix.c_str(), host), key(kGone, host)};
    const auto done = store_->check(std::span(names).first(1), soon());
    const auto gone = store_->check(std::span(names).last(1), soon());
    if (done.ok() && gone.ok() && !*done && !*gone && is_present(host)) return false;
  }
  return true;
}

std::map<int, HostReport> HostExchange::exchange(const HostReport& own) {
  const auto publish = [this](const std::string& name, const std::string& value) {
    static_cast<void>(store_->set(name, value, soon()));
    for (const auto& [host, store] : stores_) static_cast<void>(store->set(name, value, soon()));
  };
  publish(key(kReport, self()), to_json_text(own));
  const Deadline deadline = Deadline::after(kReports);
  while (!deadline.expired() && !all_have(kReport)) {
    copy(kReport);
    copy(kGone);
    pause();
  }
  std::map<int, HostReport> reports;
  const auto found = store_->list(kReport, soon());
  if (found.ok()) {
    for (const auto& [name, text] : *found) {
      auto report = parse_host_report(text);
      if (!report.ok() || name != key(kReport, report->index)) continue;
      const int host = report->index;
      reports[host] = *std::move(report);
    }
  }
  reports[self()] = own;
  // The stores stay until all have what they need.
  publish(key(kEnd, self()), "1");
  while (!deadline.expired() && !all_have(kEnd)) {
    copy(kEnd);
    copy(kGone);
    pause();
  }
  for (const auto& [host, store] : stores_) static_cast<void>(store->withdraw_last_will(key(kGone, self()), soon()));
  return reports;
}

}  // namespace lockstep::doctor
