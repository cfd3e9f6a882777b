// Simulated TCP between the hosts, as far as programs can see it: connections that are refused, time out, break or are
// reset; streams in order, with delays; data that arrives after its sender has ended.
//
// The state of a link is directed: what happens to packets from host a to host b. A lost packet is sent again, until
// the connection times out. A rejected one is answered with RST, which resets the connection at its sender.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "simulation/process.h"

namespace lockstep::simulation {

enum class Link : std::uint8_t { open, drop, reject };

class Listener;

// One end of a connection, or a socket that is not connected yet.
class Socket final : public Object, public std::enable_shared_from_this<Socket> {
 public:
  Socket(Network& network, Host& host) : Object(Kind::connection), network_(network), host_(host) {}
  short ready() const override;
  void closed() override;

  int connect(std::uint32_t address, std::uint16_t port);
  ssize_t send(const void* data, std::size_t bytes);
  ssize_t receive(void* data, std::size_t bytes);
  int take_error();

  Host& host() const { return host_; }
  std::uint32_t local_address = 0, remote_address = 0;
  std::uint16_t local_port = 0, remote_port = 0;
  bool bound = false;
  bool connected = false;
  bool keep_alive = false;

 private:
  friend class Network;
  friend class Listener;
  struct Segment {
    std::string data;
    bool end = false;
  };
  void transmit(Segment segment);
  void pump();
  void acknowledge(Time first_sent, Time pause);
  void reset(int error);
  void attempt(Time pause);
  void check_peer();

  Network& network_;
  Host& host_;
  std::shared_ptr<Socket> peer_;
  std::string received_;
  std::deque<Segment> outgoing_;
  std::size_t outgoing_bytes_ = 0;
  bool pumping_ = false;
  bool closed_ = false;        // by its process
  bool end_received_ = false;  // FIN
  bool connecting_ = false;
  int error_ = 0;
  bool broken_ = false;
  Time pause_ = 0;       // until the next retransmission
  Time first_sent_ = 0;  // of the oldest segment that was not acknowledged
  std::uint32_t target_ = 0;
  std::uint16_t target_port_ = 0;
};

class Listener final : public Object {
 public:
  Listener(Host& host, std::uint16_t port) : Object(Kind::listener), host(host), port(port) {
    host.listeners[port] = this;
  }
  short ready() const override;
  void closed() override;
  Host& host;
  const std::uint16_t port;
  std::deque<std::shared_ptr<Socket>> backlog;
};

class Network {
 public:
  explicit Network(Simulation& simulation) : simulation_(simulation) {}

  Link link(const Host& from, const Host& to) const;
  // Changes take effect at once. Idle connections notice by keep-alive, as in Linux.
  void set_link(const Host& from, const Host& to, Link link);
  // Opens all links but those of hosts without power.
  void heal();
  // From now on nothing leaves or reaches this host. Its processes are the caller's business.
  void power_off(const Host& host);
  bool has_power(const Host& host) const { return !without_power_.contains(host.index); }
  // How long a packet takes now.
  Time latency(const Host& from, const Host& to);
  Host* find_host(const Host& from, std::uint32_t address);
  std::uint16_t free_port(const Host& host);
  Simulation& simulation() { return simulation_; }
  void add(const std::shared_ptr<Socket>& socket) { sockets_.push_back(socket); }
  // Packets of this link are delayed by up to this much.
  void set_delay(const Host& from, const Host& to, Time delay) { delays_[{from.index, to.index}] = delay; }

 private:
  Simulation& simulation_;
  std::map<std::pair<int, int>, Link> links_;
  std::set<int> without_power_;
  std::map<std::pair<int, int>, Time> delays_;
  std::vector<std::weak_ptr<Socket>> sockets_;
};

}  // namespace lockstep::simulation
