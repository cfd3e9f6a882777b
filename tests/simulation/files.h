// Descriptors that are no sockets: files of a simulated host, eventfd, epoll and pidfd.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "simulation/process.h"

namespace lockstep::simulation {

class File final : public Object {
 public:
  static constexpr Kind kKind = Kind::file;
  File(Host& host, std::shared_ptr<Inode> inode) : Object(kKind), host_(host), inode_(std::move(inode)) {}
  short ready() const override;
  ssize_t read(void* data, std::size_t bytes);
  ssize_t write(const void* data, std::size_t bytes);

 private:
  Host& host_;
  const std::shared_ptr<Inode> inode_;
  std::size_t offset_ = 0;
};

class EventCounter final : public Object {
 public:
  static constexpr Kind kKind = Kind::event_counter;
  EventCounter() : Object(kKind) {}
  short ready() const override;
  std::uint64_t count = 0;
};

class Epoll final : public Object {
 public:
  static constexpr Kind kKind = Kind::epoll;
  Epoll() : Object(kKind) {}
  std::map<int, epoll_event> entries;
};

class ProcessHandle final : public Object {
 public:
  static constexpr Kind kKind = Kind::process;
  explicit ProcessHandle(Process& process) : Object(kKind), process_(process) {}
  short ready() const override;
  Process& process() const { return process_; }

 private:
  Process& process_;
};

}  // namespace lockstep::simulation
