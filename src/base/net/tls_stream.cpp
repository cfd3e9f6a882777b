#include "base/net/tls_stream.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kRecordBytes = 16384;
// Small links stay small; one that fills its space gets more.
constexpr std::size_t kSmallInput = std::size_t{4} << 10;
constexpr std::size_t kLargestInput = std::size_t{256} << 10;
// RFC 8446, section 5.5: AES-GCM is safe for 2^24.5 records.
constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 22;
constexpr unsigned char kCipherId[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

// OpenSSL's reason for the last error of this thread.
std::string openssl_reason() {
  const unsigned long code = ::ERR_peek_last_error();
  const char* text = ::ERR_reason_error_string(code);
  return text != nullptr ? text : "no reason was given";
}

struct SessionDelete {
  void operator()(SSL_SESSION* session) const { ::SSL_SESSION_free(session); }
};
using SessionPointer = std::unique_ptr<SSL_SESSION, SessionDelete>;

SessionPointer make_session(SSL* ssl, const LinkKey& key) {
  SessionPointer session(::SSL_SESSION_new());
  const SSL_CIPHER* cipher = ::SSL_CIPHER_find(ssl, kCipherId);
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.key.data());
  if (!session || cipher == nullptr || ::SSL_SESSION_set1_master_key(session.get(), bytes, key.key.size()) != 1 ||
      ::SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      ::SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session;
}

}  // namespace

struct TlsStream::Engine {
  struct Delete {
    void operator()(SSL* ssl) const { ::SSL_free(ssl); }
  };
  std::unique_ptr<SSL, Delete> ssl;
};

// What OpenSSL calls.
struct TlsCallbacks {
  static TlsStream& stream_of(const SSL* ssl) { return *static_cast<TlsStream*>(SSL_get_app_data(ssl)); }

  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** name, std::size_t* name_bytes,
                     SSL_SESSION** session) {
    const TlsStream& stream = stream_of(ssl);
    *session = make_session(ssl, stream.key_).release();
    *name = reinterpret_cast<const unsigned char*>(stream.key_.name.data());
    *name_bytes = stream.key_.name.size();
    return *session != nullptr ? 1 : 0;
  }

  static int find_key(SSL* ssl, const unsigned char* name, std::size_t name_bytes, SSL_SESSION** session) {
    TlsStream& stream = stream_of(ssl);
    *session = nullptr;
    const LinkKey* key = stream.find_key_(std::as_bytes(std::span(name, name_bytes)));
    stream.unknown_key_ = key == nullptr;
    // Without a session OpenSSL would continue with a certificate, which there is none of.
    if (key == nullptr) return 0;
    *session = make_session(ssl, *key).release();
    return *session != nullptr ? 1 : 0;
  }

  static int write(BIO* bio, const char* data, std::size_t size, std::size_t* written) {
    auto* stream = static_cast<TlsStream*>(::BIO_get_data(bio));
    stream->append_output(std::as_bytes(std::span(data, size)));
    *written = size;
    return 1;
  }

  static int read(BIO* bio, char* data, std::size_t size, std::size_t* got) {
    auto* stream = static_cast<TlsStream*>(::BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    *got = stream->take_input(std::as_writable_bytes(std::span(data, size)));
    if (*got > 0) return 1;
    BIO_set_retry_read(bio);
    return 0;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static int create(BIO* bio) {
    ::BIO_set_init(bio, 1);
    return 1;
  }

  // Never freed: streams of threads that outlive main() may use it.
  static BIO_METHOD* make_method() {
    BIO_METHOD* method = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "lockstep");
    if (method == nullptr) return nullptr;
    ::BIO_meth_set_write_ex(method, write);
    ::BIO_meth_set_read_ex(method, read);
    ::BIO_meth_set_ctrl(method, control);
    ::BIO_meth_set_create(method, create);
    return method;
  }

  static SSL_CTX* make_context(bool acceptor) {
    SSL_CTX* context = ::SSL_CTX_new(acceptor ? ::TLS_server_method() : ::TLS_client_method());
    if (context == nullptr) return nullptr;
    const bool set = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                     SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                     ::SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                     SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 &&
                     ::SSL_CTX_set_num_tickets(context, 0) == 1 && ::SSL_CTX_set_max_early_data(context, 0) == 1;
    if (!set) {
      ::SSL_CTX_free(context);
      return nullptr;
    }
    ::SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    // Without the key there is no connection: an acceptor has no certificate, and a connector trusts none.
    if (!acceptor) ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (acceptor) {
      ::SSL_CTX_set_psk_find_session_callback(context, find_key);
    } else {
      ::SSL_CTX_set_psk_use_session_callback(context, use_key);
    }
    return context;
  }
};

namespace {

// Never freed, as the method above.
SSL_CTX* context_of(bool acceptor) {
  static SSL_CTX* const connectors = TlsCallbacks::make_context(false);
  static SSL_CTX* const acceptors = TlsCallbacks::make_context(true);
  return acceptor ? acceptors : connectors;
}

Status cannot_encrypt() {
  return Status(StatusCode::internal, fmt::format("OpenSSL cannot provide TLS 1.3: {}", openssl_reason()));
}

}  // namespace

TlsStream::TlsStream(std::unique_ptr<Engine> engine) : engine_(std::move(engine)), records_per_key_(kRecordsPerKey) {}

TlsStream::~TlsStream() { ::OPENSSL_cleanse(key_.key.data(), key_.key.size()); }

namespace {

bool attach(SSL* ssl, TlsStream* stream) {
  static BIO_METHOD* const method = TlsCallbacks::make_method();
  BIO* bio = method != nullptr ? ::BIO_new(method) : nullptr;
  if (bio == nullptr) return false;
  ::BIO_set_data(bio, stream);
  SSL_set_app_data(ssl, stream);
  ::SSL_set_bio(ssl, bio, bio);
  return true;
}

}  // namespace

Result<std::unique_ptr<TlsStream>> TlsStream::connector(const LinkKey& key) {
  auto engine = std::make_unique<Engine>();
  if (SSL_CTX* context = context_of(false)) engine->ssl.reset(::SSL_new(context));
  if (!engine->ssl) return cannot_encrypt();
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(engine)));
  stream->key_ = key;
  if (!attach(stream->engine_->ssl.get(), stream.get())) return cannot_encrypt();
  ::SSL_set_connect_state(stream->engine_->ssl.get());
  return stream;
}

Result<std::unique_ptr<TlsStream>> TlsStream::acceptor(FindKey find_key) {
  auto engine = std::make_unique<Engine>();
  if (SSL_CTX* context = context_of(true)) engine->ssl.reset(::SSL_new(context));
  if (!engine->ssl) return cannot_encrypt();
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(engine)));
  stream->find_key_ = std::move(find_key);
  if (!attach(stream->engine_->ssl.get(), stream.get())) return cannot_encrypt();
  ::SSL_set_accept_state(stream->engine_->ssl.get());
  return stream;
}

std::span<std::byte> TlsStream::input_space() {
  if (input_capacity_ == 0) {
    input_capacity_ = kSmallInput;
    input_ = std::make_unique_for_overwrite<std::byte[]>(input_capacity_);
  }
  return {input_.get() + input_end_, input_capacity_ - input_end_};
}

void TlsStream::add_input(std::size_t bytes) { input_end_ += bytes; }

std::size_t TlsStream::take_input(std::span<std::byte> bytes) {
  const std::size_t size = std::min(bytes.size(), input_end_ - input_begin_);
  if (size == 0) return 0;
  std::memcpy(bytes.data(), input_.get() + input_begin_, size);
  input_begin_ += size;
  if (input_begin_ == input_end_) {
    const bool was_full = input_end_ == input_capacity_ && input_capacity_ < kLargestInput;
    input_begin_ = input_end_ = 0;
    if (was_full) {
      input_capacity_ *= 2;
      input_ = std::make_unique_for_overwrite<std::byte[]>(input_capacity_);
    }
  }
  return size;
}

void TlsStream::append_output(std::span<const std::byte> bytes) {
  if (output_capacity_ - output_end_ < bytes.size()) {
    std::size_t capacity = std::max<std::size_t>(output_capacity_, 1024);
    while (capacity - output_end_ < bytes.size()) capacity *= 2;
    auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity);
    if (output_end_ > 0) std::memcpy(larger.get(), output_.get(), output_end_);
    output_ = std::move(larger);
    output_capacity_ = capacity;
  }
  std::memcpy(output_.get() + output_end_, bytes.data(), bytes.size());
  output_end_ += bytes.size();
}

void TlsStream::consume_output(std::size_t bytes) {
  output_begin_ += bytes;
  if (output_begin_ == output_end_) output_begin_ = output_end_ = 0;
}

Status TlsStream::handshake() {
  if (established_) return {};
  ::ERR_clear_error();
  SSL* const ssl = engine_->ssl.get();
  const int result = ::SSL_do_handshake(ssl);
  if (result == 1) {
    // A handshake without the pre-shared key proves nothing. No setting above permits one; this makes sure.
    if (::SSL_session_reused(ssl) == 1) {
      established_ = true;
      return {};
    }
    failed_ = true;
    return Status(StatusCode::unauthenticated, "it encrypts without this job's key");
  }
  if (::SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ) return {};
  failed_ = true;
  if (unknown_key_) {
    return Status(StatusCode::unauthenticated,
                  "it asked for a key that this process does not have: it does not have this job's secret, or it wants "
                  "another link, group or generation");
  }
  return Status(StatusCode::unauthenticated, fmt::format("no agreement on encryption: {}", openssl_reason()));
}

bool TlsStream::write_record(std::span<const std::byte> bytes) {
  SSL* const ssl = engine_->ssl.get();
  if (records_ >= records_per_key_) {
    // The message that announces it precedes the next record.
    if (::SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
    records_ = 0;
  }
  std::size_t written = 0;
  if (::SSL_write_ex(ssl, bytes.data(), bytes.size(), &written) != 1 || written != bytes.size()) return false;
  ++records_;
  return true;
}

std::size_t TlsStream::encrypt(std::span<const iovec> ranges) {
  ::ERR_clear_error();
  std::size_t total = 0;
  std::size_t offset = 0;  // in the first of `ranges`
  while (!ranges.empty() && total < kBatchBytes && !failed_) {
    const auto rest =
        std::span(static_cast<const std::byte*>(ranges.front().iov_base), ranges.front().iov_len).subspan(offset);
    if (rest.size() >= kRecordBytes || ranges.size() == 1) {
      const auto record = rest.first(std::min({rest.size(), kRecordBytes, kBatchBytes - total}));
      failed_ = !record.empty() && !write_record(record);
      total += record.size();
      offset += record.size();
    } else {
      // A record costs more than copying its bytes.
      if (!gathered_) gathered_ = std::make_unique_for_overwrite<std::byte[]>(kRecordBytes);
      std::size_t size = 0;
      while (!ranges.empty() && size < std::min(kRecordBytes, kBatchBytes - total)) {
        const std::size_t part =
            std::min({ranges.front().iov_len - offset, kRecordBytes - size, kBatchBytes - total - size});
        std::memcpy(gathered_.get() + size, static_cast<const std::byte*>(ranges.front().iov_base) + offset, part);
        size += part;
        offset += part;
        if (offset < ranges.front().iov_len) break;
        ranges = ranges.subspan(1);
        offset = 0;
      }
      failed_ = size > 0 && !write_record({gathered_.get(), size});
      total += size;
      continue;
    }
    if (offset == ranges.front().iov_len) {
      ranges = ranges.subspan(1);
      offset = 0;
    }
  }
  return failed_ ? 0 : total;
}

std::size_t TlsStream::decrypt(std::span<std::byte> bytes) {
  if (failed_) return 0;
  ::ERR_clear_error();
  SSL* const ssl = engine_->ssl.get();
  std::size_t got = 0;
  if (::SSL_read_ex(ssl, bytes.data(), bytes.size(), &got) == 1) return got;
  failed_ = ::SSL_get_error(ssl, 0) != SSL_ERROR_WANT_READ;
  return 0;
}

bool TlsStream::has_buffered() const { return !needs_input() || ::SSL_pending(engine_->ssl.get()) > 0; }

}  // namespace lockstep
