// Boost 1.74 uses std::exchange without including it.
#include <utility>
//
#include "dashboard/http/server.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <future>
#include <list>
#include <thread>

#include "base/log.h"
#include "base/start_thread.h"
#include "dashboard/http/session.h"

namespace lockstep::dashboard {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Nicer than ranks, which compute on the same cores.
constexpr int kNice = 10;
// What the kernel buffers for a client that does not read.
constexpr int kSendBuffer = 256 * 1024;
// How often to look whether the last state has reached all viewers.
constexpr std::chrono::milliseconds kLastPeriod{10};

class Server final : public HttpServer {
 public:
  Server(std::unique_ptr<ServedContent> content, const ServerLimits& limits)
      : content_(std::move(content)), limits_(limits), acceptor_(io_), timer_(io_) {}

  ~Server() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    for (const auto& session : sessions_) session->close();
  }

  Status run(UniqueFd listener) {
    const auto address = local_address(listener.get());
    if (!address.ok()) return address.status();
    family_ = address->family();
    error_code error;
    acceptor_.assign(family_ == AF_INET6 ? tcp::v6() : tcp::v4(), listener.get(), error);
    if (error) return Status(StatusCode::internal, "the dashboard's socket cannot be used: " + error.message());
    listener.release();
    accept_more();
    next_period();
    // Signals are handled by the launcher's own threads.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    auto thread = start_thread("serves the dashboard", [this] { serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    return {};
  }

  void finish(std::chrono::milliseconds time) override {
    asio::post(io_, [this] {
      finishing_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      sample();
      for (const auto& session : sessions_) session->finish();
      next_period();  // replaces the one that is being waited for
    });
    finished_.get_future().wait_for(time);
  }

 private:
  void serve() {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
    try {
      io_.run();
    } catch (const std::exception& error) {
      // The job continues without it.
      log_warn("the dashboard has stopped: {}", error.what());
    }
  }

  void sample() {
    content_->sample();
    sampled_ = true;
  }

  void next_period() {
    timer_.expires_after(finishing_ ? kLastPeriod : limits_.period);
    timer_.async_wait([this](const error_code& error) {
      if (error) return;
      next_period();
      if (!finishing_) {
        sample();
        for (const auto& session : sessions_) session->update();
      }
      const auto now = Session::Clock::now();
      for (const auto& session : sessions_) session->check_time(now);
      remove_closed();
      accepts_ = 0;
      if (!accepting_ && !finishing_) accept_more();
      check_finished();
    });
  }

  void remove_closed() {
    sessions_.remove_if([](const auto& session) { return session->closed(); });
  }

  void check_finished() {
    if (!finishing_ || reported_) return;
    if (!sessions_.empty()) return;
    reported_ = true;
    finished_.set_value();
  }

  // When there are too many connections, or too many new ones in this period, others wait in the kernel's queue.
  void accept_more() {
    accepting_ = sessions_.size() < limits_.connections && accepts_ < limits_.accepts_per_period;
    if (!accepting_) return;
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& error) {
      if (error || finishing_) return;
      accept_one();
    });
  }

  void accept_one() {
    // Not by Boost, whose sockets the ranks would inherit.
    UniqueFd fd(::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      // Another thread's processes may have used up all descriptors.
      accepting_ = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      if (accepting_) accept_more();
      return;
    }
    ++accepts_;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer));
    tcp::socket socket(io_);
    error_code error;
    socket.assign(family_ == AF_INET6 ? tcp::v6() : tcp::v4(), fd.get(), error);
    if (!error) {
      fd.release();
      if (!sampled_) sample();
      sessions_.push_back(std::make_shared<Session>(std::move(socket), *content_, limits_));
      sessions_.back()->start();
    }
    remove_closed();
    accept_more();
  }

  const std::unique_ptr<ServedContent> content_;
  const ServerLimits limits_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  int family_ = AF_INET;
  std::list<std::shared_ptr<Session>> sessions_;
  std::size_t accepts_ = 0;  // in this period
  bool accepting_ = false;
  bool sampled_ = false;
  bool finishing_ = false;
  bool reported_ = false;
  std::promise<void> finished_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(UniqueFd listener, std::unique_ptr<ServedContent> content,
                                                      const ServerLimits& limits) {
  auto server = std::make_unique<Server>(std::move(content), limits);
  LOCKSTEP_RETURN_IF_ERROR(server->run(std::move(listener)));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace lockstep::dashboard
