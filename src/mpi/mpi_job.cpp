#include "mpi/mpi_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "base/net/socket.h"
#include "base/random.h"
#include "communicator/communicator_impl.h"
#include "record/recorder.h"
#include "rendezvous/network_interface.h"
#include "rendezvous/process_identity.h"
#include "store/tcp/tcp_store.h"

namespace lockstep::mpi {
namespace {

// What each process sends to all others over MPI before there is a store.
struct Introduction {
  std::array<char, 256> host{};
  std::array<char, 256> network{};    // equal for processes that reach each other over loopback
  std::array<char, 256> processes{};  // equal for processes whose pids can be compared
  std::int64_t pid = 0;
};
// What rank 0 sends to all others.
struct Invitation {
  std::array<char, 128> address{};
  std::array<char, 128> secret{};
  std::array<char, 512> error{};
};

template <std::size_t size>
void put(std::array<char, size>& field, const std::string& text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(field.data(), text.data(), length);
  field[length] = '\0';
}

// A collective before the watch group exists: on the progress thread, only the deadline ends it.
Status exchange(const std::shared_ptr<MpiEngine>& engine, const char* what, const std::shared_ptr<void>& memory,
                std::function<int(lockstep_mpi_request**)> start, Deadline deadline) {
  auto done = std::make_shared<int>(0);
  const auto call = [mpi = &engine->mpi(), start = std::move(start), memory, deadline, done]() -> int {
    lockstep_mpi_request* request = nullptr;
    if (int code = start(&request)) return code;
    while (!deadline.expired()) {
      std::size_t received = 0;
      if (int code = mpi->test(request, done.get(), &received); code != 0 || *done != 0) return code;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return 0;
  };
  LOCKSTEP_RETURN_IF_ERROR(engine->run(what, call, Deadline::after(deadline.remaining() + std::chrono::seconds(2))));
  if (*done != 0) return {};
  engine->set_failed();
  engine->abandon({ChannelOperation{.text = what, .start = nullptr, .memory = memory}});
  return {StatusCode::timed_out,
          fmt::format("{}: not all {} processes of the job took part in time", what, engine->world().size)};
}

struct Others {
  bool one_network = true;
  std::string other_host;  // a host in another network, if there is one
};

Result<Others> introduce(const std::shared_ptr<MpiEngine>& engine, lockstep_mpi_comm* comm, const MemberRecord& self,
                         Deadline deadline) {
  struct Memory {
    Introduction mine;
    std::vector<Introduction> all;
  };
  auto memory = std::make_shared<Memory>();
  put(memory->mine.host, self.host);
  put(memory->mine.network, self.network_space);
  put(memory->mine.processes, self.process_space);
  memory->mine.pid = self.pid;
  memory->all.resize(static_cast<std::size_t>(engine->world().size));
  LOCKSTEP_RETURN_IF_ERROR(exchange(
      engine, "exchanging host names over MPI", memory,
      [memory, comm, mpi = &engine->mpi()](lockstep_mpi_request** request) {
        return mpi->all_gather(comm, &memory->mine, memory->all.data(), sizeof(Introduction),
                               static_cast<int>(DType::u8), request);
      },
      deadline));
  Others others;
  std::vector<MemberRecord> processes;
  for (const Introduction& process : memory->all) {
    MemberRecord record;
    record.pid = process.pid;
    record.process_space = process.processes.data();
    processes.push_back(std::move(record));
  }
  engine->set_processes(self, std::move(processes));
  for (const Introduction& process : memory->all) {
    if (!self.network_space.empty() && std::strcmp(process.network.data(), memory->mine.network.data()) == 0) continue;
    if (others.one_network) others.other_host = process.host.data();
    others.one_network = false;
  }
  return others;
}

// Loopback if all ranks can reach that; else the address that leads to another host of the job.
Result<std::string> address_to_bind(const Others& others) {
  if (others.one_network) return std::string("127.0.0.1");
  const std::string wanted = wanted_interface();
  Result<SocketAddress> address = choose_local_address(wanted, others.other_host);
  // A name that this host cannot resolve, or resolves to itself, is of no use.
  if (wanted.empty() && (!address.ok() || address->is_loopback())) address = choose_local_address("", "");
  if (!address.ok()) return address.status();
  return address->host();
}

Status open_store(const Others& others, const std::string& secret, MpiJob* job, Invitation* invitation) {
  const Result<std::string> address = address_to_bind(others);
  if (!address.ok()) return address.status();
  auto server = TcpStoreServer::start({.host = *address, .secret = Secret(secret)});
  if (!server.ok()) return server.status();
  job->server = std::move(*server);
  put(invitation->address, job->server->address());
  put(invitation->secret, secret);
  return {};
}

struct Meeting {
  Secret secret;
  std::string host;  // of the store
};

Result<Meeting> meet(MpiJob* job, lockstep_mpi_comm* comm, const Others& others, Deadline deadline) {
  auto invitation = std::make_shared<Invitation>();
  if (job->engine->world().rank == 0) {
    const Status opened = open_store(others, random_hex(32), job, invitation.get());
    if (!opened.ok()) put(invitation->error, opened.to_string());
  }
  LOCKSTEP_RETURN_IF_ERROR(exchange(
      job->engine, "sending the store's address over MPI", invitation,
      [invitation, comm, mpi = &job->engine->mpi()](lockstep_mpi_request** request) {
        return mpi->broadcast(comm, invitation.get(), sizeof(Invitation), static_cast<int>(DType::u8), 0, request);
      },
      deadline));
  if (invitation->error[0] != '\0') {
    return Status(StatusCode::unavailable,
                  fmt::format("rank 0 cannot open the store of the job: {}", invitation->error.data()));
  }
  const Result<HostPort> where = parse_host_port(invitation->address.data());
  if (!where.ok()) return where.status();
  const Secret secret(invitation->secret.data());
  auto store = TcpStore::connect(where->host, where->port, secret, deadline);
  if (!store.ok()) {
    return store.status().with_context(
        "rank 0 serves the store of the job at an address that this host does not reach; "
        "LOCKSTEP_INTERFACE chooses another one");
  }
  job->store = *store;
  return Meeting{secret, where->host};
}

Result<MpiWorld> form(const std::string& backend, const CommunicatorOptions& options) {
  const Deadline deadline = Deadline::after(options.init_timeout);
  auto engine = MpiEngine::acquire(backend, process_environment(), deadline);
  if (!engine.ok()) return engine.status();
  MpiWorld world;
  world.job = std::make_shared<MpiJob>();
  world.job->engine = *engine;
  const lockstep_mpi_world& facts = (*engine)->world();
  set_log_rank(facts.rank);
  record::Recorder::process().set_world(facts.rank, facts.size, 0);
  auto comm = (*engine)->copy_world(deadline);
  if (!comm.ok()) return comm.status();
  world.comm = *comm;
  const MemberRecord self = claim_rank(facts.rank, facts.size, "");
  const Result<Others> others = introduce(*engine, world.comm, self, deadline);
  if (!others.ok()) return others.status();
  const Result<Meeting> meeting = meet(world.job.get(), world.comm, *others, deadline);
  if (!meeting.ok()) return meeting.status();
  CommunicatorOptions watch = options;
  watch.init_timeout = std::max(std::chrono::milliseconds(1),
                                std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining()));
  try {
    world.watch = Communicator::Impl::at(MeetingPoint{world.job->store, facts.rank, facts.size, meeting->host}, watch,
                                         meeting->secret);
  } catch (const Error& error) {
    return error.status();
  }
  return world;
}

}  // namespace

Result<MpiWorld> form_world(const std::string& backend, const CommunicatorOptions& options) {
  Result<MpiWorld> world = form(backend, options);
  if (!world.ok()) return world.status().with_context(fmt::format("backend \"{}\"", backend));
  return world;
}

}  // namespace lockstep::mpi
