#include "membership/member_store.h"

#include <fmt/format.h>

#include "base/net/resolve.h"
#include "base/net/socket.h"
#include "base/random.h"
#include "store/tcp/tcp_store.h"

namespace lockstep::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kMe = "me";
constexpr const char* kGeneration = "generation";
// A member store that accepts a connection but does not answer for this long belongs to a stopped process.
constexpr milliseconds kAnswerTime{1000};

std::string registration_key(const std::string& id, const std::string& nonce) {
  return fmt::format("registration/{}/{}", id, nonce);
}
std::string gone_key(const std::string& id, const std::string& nonce) { return fmt::format("gone/{}/{}", id, nonce); }
std::string answer_key(const std::string& id, const std::string& nonce) {
  return fmt::format("answer/{}/{}", id, nonce);
}

Deadline soon() { return Deadline::after(kAnswerTime); }

// A call to the store of this process. It only times out if the process itself was stopped meanwhile, and then a second
// call succeeds.
template <typename Call>
auto own(Call call) {
  const auto code = [](const auto& result) {
    if constexpr (requires { result.code(); })
      return result.code();
    else
      return result.status().code();
  };
  auto result = call();
  return !result.ok() && code(result) == StatusCode::timed_out ? call() : std::move(result);
}

}  // namespace

MemberStore::MemberStore(std::unique_ptr<TcpStoreServer> server, std::shared_ptr<Store> store)
    : server_(std::move(server)), store_(std::move(store)) {}

Result<std::unique_ptr<MemberStore>> MemberStore::open(const std::string& host, const Secret& secret,
                                                       const std::string& id) {
  auto server = TcpStoreServer::start({.host = host, .secret = secret});
  if (!server.ok()) return server.status().with_context("opening this process' member store");
  auto store = TcpStore::connect(host, (*server)->port(), secret, Deadline::after(seconds(10)));
  if (!store.ok()) return store.status();
  std::unique_ptr<MemberStore> member_store(new MemberStore(*std::move(server), *std::move(store)));
  LOCKSTEP_RETURN_IF_ERROR(member_store->publish({}));
  LOCKSTEP_RETURN_IF_ERROR(own([&] { return member_store->store_->set(kMe, id, soon()); }));
  return member_store;
}

Status MemberStore::publish(const Generation& accepted) {
  return own([&] { return store_->set(kGeneration, format(accepted), soon()); });
}

Result<std::vector<MemberStore::Registrant>> MemberStore::registrants() {
  const auto registrations = own([&] { return store_->list("registration/", soon()); });
  if (!registrations.ok()) return registrations.status();
  const auto gone = own([&] { return store_->list("gone/", soon()); });
  if (!gone.ok()) return gone.status();
  for (const auto& [key, unused] : *gone) {
    const std::string rest = key.substr(std::string("gone/").size());
    for (const char* kind : {"registration/", "gone/", "answer/"}) (void)store_->remove(kind + rest, soon());
  }
  std::vector<Registrant> result;
  const std::lock_guard lock(mutex_);
  std::erase_if(parsed_, [&](const auto& one) { return !registrations->contains(one.first); });
  for (const auto& [key, text] : *registrations) {
    const std::string rest = key.substr(std::string("registration/").size());
    if (gone->contains("gone/" + rest)) continue;
    auto registration = parse(key, text);
    if (!registration.ok()) continue;  // of another version: it gets no answer
    result.push_back({*std::move(registration), rest.substr(rest.rfind('/') + 1)});
  }
  return result;
}

Result<Registration> MemberStore::parse(const std::string& key, const std::string& text) {
  const auto known = parsed_.find(key);
  if (known != parsed_.end() && known->second.text == text) return known->second.registration;
  auto registration = parse_registration(text);
  if (registration.ok()) parsed_.insert_or_assign(key, Parsed{.text = text, .registration = *registration});
  return registration;
}

Result<bool> MemberStore::is_connected(const Registrant& registrant) {
  const std::string keys[] = {gone_key(registrant.registration.member.id, registrant.nonce)};
  const auto gone = own([&] { return store_->check(keys, soon()); });
  if (!gone.ok()) return gone.status();
  return !*gone;
}

Status MemberStore::answer(const Registrant& registrant, const Answer& answer) {
  const std::string& id = registrant.registration.member.id;
  LOCKSTEP_RETURN_IF_ERROR(own([&] { return store_->set(answer_key(id, registrant.nonce), format(answer), soon()); }));
  const auto removed = own([&] { return store_->remove(registration_key(id, registrant.nonce), soon()); });
  return removed.status();
}

Result<std::shared_ptr<Store>> connect_to_member_store(const Member& member, const Secret& secret, Deadline deadline) {
  const auto address = parse_host_port(member.store_address);
  if (!address.ok()) return address.status();
  const auto resolved = resolve(address->host, address->port, deadline);
  if (!resolved.ok()) return resolved.status();
  const auto lost = [&](const char* how) {
    return Status(StatusCode::peer_lost, fmt::format("{} cannot be reached: {} on the address of its member store, {}",
                                                     member.describe(), how, member.store_address));
  };
  Result<std::shared_ptr<TcpStore>> store = Status(StatusCode::timed_out, "");
  do {  // connect() tries again until its deadline if it is refused, but this process may have ended since the probe
    switch (probe_address(resolved->front(), deadline)) {
      case AddressState::refused: return lost("no process is listening");
      case AddressState::silent:
        return Status(StatusCode::timed_out,
                      fmt::format("no answer from the member store {} of {}", member.store_address, member.describe()));
      case AddressState::answered: break;
    }
    store = TcpStore::connect(address->host, address->port, secret, soon().earlier(deadline));
  } while (store.status().code() == StatusCode::unavailable && !deadline.expired());
  if (!store.ok()) return store.status();
  const auto owner = (*store)->get(kMe, deadline);
  if (!owner.ok()) return owner.status();
  if (*owner != member.id) return lost("another process is listening");
  return std::shared_ptr<Store>(*std::move(store));
}

ProbeResult probe_member_store(const Member& member, const Secret& secret, Deadline deadline) {
  ProbeResult result;
  const auto store = connect_to_member_store(member, secret, deadline);
  if (!store.ok()) {
    result.kind =
        store.status().code() == StatusCode::peer_lost ? ProbeResult::Kind::refused : ProbeResult::Kind::silent;
    return result;
  }
  const auto text = (*store)->get(kGeneration, deadline);
  if (!text.ok()) return result;
  auto generation = parse_generation(*text);
  if (!generation.ok()) return result;
  result.kind = ProbeResult::Kind::answered;
  result.accepted = {*std::move(generation)};
  return result;
}

RegistrationClient::RegistrationClient(Member at, Registration registration, std::shared_ptr<Store> store)
    : at_(std::move(at)), registration_(std::move(registration)), store_(std::move(store)), nonce_(random_hex(8)) {}

Result<std::unique_ptr<RegistrationClient>> RegistrationClient::begin(const Member& at, Registration registration,
                                                                      const Secret& secret, Deadline deadline) {
  auto store = connect_to_member_store(at, secret, deadline);
  if (!store.ok()) return store.status();
  std::unique_ptr<RegistrationClient> client(new RegistrationClient(at, std::move(registration), *std::move(store)));
  const std::string& id = client->registration_.member.id;
  const auto will = client->store_->set_last_will(gone_key(id, client->nonce_), "", deadline);
  if (!will.ok()) return will.status();
  LOCKSTEP_RETURN_IF_ERROR(
      client->store_->set(registration_key(id, client->nonce_), format(client->registration_), deadline));
  return client;
}

Recovery::Followed RegistrationClient::wait(milliseconds time) {
  Recovery::Followed followed;
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
  const auto generation = store_->get(kGeneration, soon());
  const auto parsed = generation.ok() ? parse_generation(*generation) : Result<Generation>(generation.status());
  if (!parsed.ok()) {
    followed.lost = true;
    return followed;
  }
  followed.accepted = *parsed;
  return followed;
}

}  // namespace lockstep::membership
