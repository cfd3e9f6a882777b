// `lockstep run --dashboard`: serves a page that shows the state of the ranks that this launcher started, updated live,
// and the same as text for Prometheus at /metrics.
//
// The ranks take no part: a thread reads what they record (record/record_memory.h) and what the kernel counts for them.
// Nothing that a browser does can slow or end the job.
#pragma once

#include <memory>
#include <string>

#include "dashboard/http/server.h"
#include "dashboard/job_sampler.h"
#include "lockstep/base/status.h"

namespace lockstep::dashboard {

class Dashboard {
 public:
  static constexpr std::uint16_t kDefaultPort = 29480;

  // `place`: "host:port" of a loopback address. Empty: 127.0.0.1 at kDefaultPort, or at a free port if that is in use.
  // Errors have one-line messages: invalid_argument (not loopback, not a place), already_exists (in use), unavailable.
  static Result<std::unique_ptr<Dashboard>> start(const std::string& place, JobFacts facts);

  std::string url() const { return "http://" + address_ + "/"; }
  // What the launcher reports; thread-safe.
  JobSampler& job() { return *job_; }

  // The job is over: shows `conclusion` to all viewers. Returns within half a second.
  void finish(bool succeeded, const std::string& conclusion);

 private:
  Dashboard(std::string address, std::shared_ptr<JobSampler> job, std::unique_ptr<HttpServer> server);
  std::string address_;
  std::shared_ptr<JobSampler> job_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace lockstep::dashboard
