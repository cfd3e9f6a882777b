// The links of a rank in a group of processes: connects on demand, and takes what the acceptor has accepted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/link_acceptor.h"
#include "rendezvous/links.h"
#include "transport/link_source.h"
#include "transport/topology.h"

namespace lockstep {

class MeshLinks final : public LinkSource {
 public:
  // `addresses` by rank, as texts: where ranks of other hosts listen. Empty if there are none.
  MeshLinks(std::shared_ptr<const LinkContext> context, const Topology& topology, std::vector<std::string> addresses,
            std::unique_ptr<LinkAcceptor> acceptor);

  // Up to half of the time is for the connection, the rest for the handshake.
  Result<Channel> connect(const LinkName& name, Deadline deadline) override;
  Result<Channel> connect(const LinkName& name, Deadline deadline, std::chrono::milliseconds connect_time);
  Links take_all(const std::string& role) override { return acceptor_->take_all(role); }
  void set_listener(const std::string& role, std::function<void()> listener) override {
    acceptor_->set_listener(role, std::move(listener));
  }
  int data_links(int peer) const override;

  LinkAcceptor& acceptor() { return *acceptor_; }

 private:
  Result<SocketAddress> address_of(int peer) const;

  // Constant after construction.
  const std::shared_ptr<const LinkContext> context_;
  std::vector<int> host_of_;  // by rank
  bool single_host_;
  const std::vector<std::string> addresses_;
  const std::unique_ptr<LinkAcceptor> acceptor_;
};

}  // namespace lockstep
