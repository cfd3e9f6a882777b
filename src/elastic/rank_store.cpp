#include "elastic/rank_store.h"

#include <fmt/format.h>

#include "base/net/socket.h"
#include "base/random.h"
#include "lockstep/store/tcp_store.h"

namespace lockstep::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kMe = "me";
constexpr const char* kGeneration = "generation";
// A door that is connected and does not answer for this long belongs to a stopped process.
constexpr milliseconds kAnswerTime{1000};

std::string visit_key(const std::string& id, const std::string& nonce) { return fmt::format("visit/{}/{}", id, nonce); }
std::string gone_key(const std::string& id, const std::string& nonce) { return fmt::format("gone/{}/{}", id, nonce); }
std::string answer_key(const std::string& id, const std::string& nonce) {
  return fmt::format("answer/{}/{}", id, nonce);
}

Deadline soon() { return Deadline::after(kAnswerTime); }

}  // namespace

RankStore::RankStore(std::unique_ptr<TcpStoreServer> server, std::shared_ptr<Store> store)
    : server_(std::move(server)), store_(std::move(store)) {}

Result<std::unique_ptr<RankStore>> RankStore::open(const std::string& host, const Secret& secret,
                                                   const std::string& id) {
  auto server = TcpStoreServer::start({.host = host, .secret = secret});
  if (!server.ok()) return server.status().with_context("opening this process' door");
  auto store = TcpStore::connect(host, (*server)->port(), secret, Deadline::after(seconds(10)));
  if (!store.ok()) return store.status();
  std::unique_ptr<RankStore> door(new RankStore(*std::move(server), *std::move(store)));
  LOCKSTEP_RETURN_IF_ERROR(door->publish({}));
  LOCKSTEP_RETURN_IF_ERROR(door->store_->set(kMe, id, soon()));
  return door;
}

Status RankStore::publish(const Generation& accepted) { return store_->set(kGeneration, format(accepted), soon()); }

Result<std::vector<RankStore::Visitor>> RankStore::visitors() {
  const auto visits = store_->list("visit/", soon());
  if (!visits.ok()) return visits.status();
  const auto gone = store_->list("gone/", soon());
  if (!gone.ok()) return gone.status();
  for (const auto& [key, unused] : *gone) {
    const std::string rest = key.substr(std::string("gone/").size());
    for (const char* kind : {"visit/", "gone/", "answer/"}) (void)store_->remove(kind + rest, soon());
  }
  std::vector<Visitor> result;
  for (const auto& [key, text] : *visits) {
    const std::string rest = key.substr(std::string("visit/").size());
    if (gone->contains("gone/" + rest)) continue;
    auto registration = parse_registration(text);
    if (!registration.ok()) continue;  // of another version: it will not get an answer
    result.push_back({*std::move(registration), rest.substr(rest.rfind('/') + 1)});
  }
  return result;
}

Result<bool> RankStore::is_connected(const Visitor& visitor) {
  const std::string keys[] = {gone_key(visitor.registration.member.id, visitor.nonce)};
  const auto gone = store_->check(keys, soon());
  if (!gone.ok()) return gone.status();
  return !*gone;
}

Status RankStore::answer(const Visitor& visitor, const Answer& answer) {
  const std::string& id = visitor.registration.member.id;
  LOCKSTEP_RETURN_IF_ERROR(store_->set(answer_key(id, visitor.nonce), format(answer), soon()));
  const auto removed = store_->remove(visit_key(id, visitor.nonce), soon());
  return removed.status();
}

Result<std::shared_ptr<Store>> visit(const Member& member, const Secret& secret, Deadline deadline) {
  const auto address = parse_host_port(member.door);
  if (!address.ok()) return address.status();
  const auto resolved = resolve(address->host, address->port);
  if (!resolved.ok()) return resolved.status();
  const auto lost = [&](const char* how) {
    return Status(StatusCode::peer_lost,
                  fmt::format("the process of {} has ended: {} at its door {}", member.describe(), how, member.door));
  };
  switch (probe_address(resolved->front(), deadline)) {
    case ProbeResult::refused: return lost("nobody listens");
    case ProbeResult::silent:
      return Status(StatusCode::timed_out,
                    fmt::format("no answer at the door {} of {}", member.door, member.describe()));
    case ProbeResult::answered: break;
  }
  auto store = TcpStore::connect(address->host, address->port, secret, deadline);
  if (!store.ok()) return store.status();
  const auto owner = (*store)->get(kMe, deadline);
  if (!owner.ok()) return owner.status();
  if (*owner != member.id) return lost("another process listens");
  return std::shared_ptr<Store>(*std::move(store));
}

Look look_at(const Member& member, const Secret& secret, Deadline deadline) {
  Look look{.asked = Deadline::Clock::now()};
  const auto store = visit(member, secret, deadline);
  if (!store.ok()) {
    look.kind = store.status().code() == StatusCode::peer_lost ? Look::Kind::refused : Look::Kind::silent;
    return look;
  }
  const auto text = (*store)->get(kGeneration, deadline);
  if (!text.ok()) return look;
  auto generation = parse_generation(*text);
  if (!generation.ok()) return look;
  look.kind = Look::Kind::answered;
  look.accepted = *std::move(generation);
  return look;
}

RegistrationClient::RegistrationClient(Member at, Registration registration, std::shared_ptr<Store> store)
    : at_(std::move(at)), registration_(std::move(registration)), store_(std::move(store)), nonce_(random_hex(8)) {}

Result<std::unique_ptr<RegistrationClient>> RegistrationClient::begin(const Member& at, Registration registration,
                                                                      const Secret& secret, Deadline deadline) {
  auto store = visit(at, secret, deadline);
  if (!store.ok()) return store.status();
  std::unique_ptr<RegistrationClient> visit(new RegistrationClient(at, std::move(registration), *std::move(store)));
  const std::string& id = visit->registration_.member.id;
  const auto will = visit->store_->set_last_will(gone_key(id, visit->nonce_), "", deadline);
  if (!will.ok()) return will.status();
  LOCKSTEP_RETURN_IF_ERROR(visit->store_->set(visit_key(id, visit->nonce_), format(visit->registration_), deadline));
  return visit;
}

Recovery::Followed RegistrationClient::wait(milliseconds time) {
  Recovery::Followed followed{.asked = Deadline::Clock::now()};
  const auto answer = store_->get(answer_key(registration_.member.id, nonce_), Deadline::after(time));
  if (answer.ok()) {
    auto parsed = parse_answer(*answer);
    if (parsed.ok()) {
      followed.answer = *std::move(parsed);
    } else {
      followed.lost = true;
    }
    return followed;
  }
  followed.asked = Deadline::Clock::now();
  const auto generation = store_->get(kGeneration, soon());
  const auto parsed = generation.ok() ? parse_generation(*generation) : Result<Generation>(generation.status());
  if (!parsed.ok()) {
    followed.lost = true;
    return followed;
  }
  followed.accepted = *parsed;
  return followed;
}

}  // namespace lockstep::elastic
