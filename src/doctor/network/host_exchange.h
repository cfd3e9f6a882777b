// The same `lockstep doctor` on each host: they find each other, measure their links, and exchange what they found.
//
// Every host serves a store at its entry of --hosts, and writes to each store that it reaches. So two hosts exchange
// reports if one of them reaches the other, or if a third reaches both: a firewall that cuts one direction is reported
// on both sides.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/encryption.h"
#include "doctor/network/echo_server.h"
#include "doctor/network/host_report.h"
#include "launch/options/endpoint.h"
#include "lockstep/store/store.h"

namespace lockstep::doctor {

struct ExchangeOptions {
  std::vector<HostPort> hosts = {};  // the same on all hosts
  Secret secret = {};
  EncryptionPolicy policy = EncryptionPolicy::all;
  std::chrono::milliseconds timeout{30'000};  // for hosts that have not come
};

class HostExchange {
 public:
  // Opens the store and the port for measurements. invalid_argument: no entry is an address of this host, or
  // LOCKSTEP_INTERFACE is wrong. unauthenticated: a secret is needed.
  static Result<std::unique_ptr<HostExchange>> open(ExchangeOptions options);
  ~HostExchange();
  HostExchange(const HostExchange&) = delete;
  HostExchange& operator=(const HostExchange&) = delete;

  int self() const { return own_.endpoint; }
  // Waits for the other hosts, for options.timeout at most, and measures the links to those that can be reached.
  std::vector<LinkReport> measure();
  // Publishes this host's report and returns those of all hosts, by index; of one that did not come, or that ended
  // before it reported, nothing. Blocks until the hosts that came have reported, for a minute at most.
  std::map<int, HostReport> exchange(const HostReport& own);

 private:
  HostExchange(ExchangeOptions options, launch::OwnStore own);
  Status start();
  LinkReport examine(int other);
  std::shared_ptr<Store> reach_store(int other, LinkReport& link, Deadline deadline);
  void measure_alone(LinkReport& link, Store& other);
  void introduce(int other, const std::shared_ptr<Store>& store);
  void copy(const std::string& prefix);
  bool is_present(int host);
  bool all_have(const std::string& prefix);

  const ExchangeOptions options_;
  launch::OwnStore own_;
  std::string presence_;
  std::unique_ptr<EchoServer> echo_;
  std::shared_ptr<Store> store_;  // our own

  // Guarded by mutex_.
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Store>> stores_;  // of the others that were reached
};

}  // namespace lockstep::doctor
