// One end of a TLS 1.3 connection, without a socket: ciphertext in, ciphertext out.
//
// Both ends authenticate with a pre-shared key (base/net/link_key.h) and agree on fresh keys by Diffie-Hellman, so that
// a party that learns the secret later cannot read what was recorded before. There are no certificates, no session
// tickets and no early data; the only cipher suite is TLS_AES_128_GCM_SHA256. Each direction changes its key long
// before the cipher's limit of about 400 GB.
//
// Used in this order: add input as it arrives, call handshake() and send the output until established(); then encrypt()
// and decrypt(). After the first error the stream can only be destroyed. Not thread-safe. Nothing blocks.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/net/link_key.h"
#include "lockstep/base/status.h"

namespace lockstep {

// The first byte of a TLS connection, in either direction, is one of these types of records. Lockstep's own messages
// start with another.
inline constexpr std::byte kTlsAlertRecord{0x15};
inline constexpr std::byte kTlsHandshakeRecord{0x16};

class TlsStream {
 public:
  // The acceptor's choice of the key: null refuses the connection.
  using FindKey = std::function<const LinkKey*(std::span<const std::byte> name)>;

  static Result<std::unique_ptr<TlsStream>> connector(const LinkKey& key);
  static Result<std::unique_ptr<TlsStream>> acceptor(FindKey find_key);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Where to put ciphertext that arrives, then how much was put there. Only if needs_input(): the space is the same
  // until then.
  std::span<std::byte> input_space();
  void add_input(std::size_t bytes);
  // All input so far was used; the rest of a record may be missing.
  bool needs_input() const { return input_begin_ == input_end_; }

  // Ciphertext to send, before anything else is done, and how much of it was sent.
  std::span<const std::byte> output() const { return {output_.get() + output_begin_, output_end_ - output_begin_}; }
  void consume_output(std::size_t bytes);

  // Continues the handshake with the input. unauthenticated: the two ends do not share the key. There may be output
  // (an alert) even then.
  Status handshake();
  bool established() const { return established_; }

  // Encrypts from the start of `ranges`, at most kBatchBytes, into the output. Returns how many bytes; 0: it failed.
  static constexpr std::size_t kBatchBytes = std::size_t{128} << 10;
  std::size_t encrypt(std::span<const iovec> ranges);

  // Decrypts into `bytes`. 0: needs more input, or failed().
  std::size_t decrypt(std::span<std::byte> bytes);
  // Decrypted bytes, or input that has not been decrypted, are waiting.
  bool has_buffered() const;

  // A record was not what the other end has sent: changed, lost, repeated or reordered.
  bool failed() const { return failed_; }

  // After how many records the key of a direction is replaced; for tests.
  void set_records_per_key(std::uint64_t records) { records_per_key_ = records; }

 private:
  friend struct TlsCallbacks;
  struct Engine;  // OpenSSL's objects

  explicit TlsStream(std::unique_ptr<Engine> engine);
  bool write_record(std::span<const std::byte> bytes);
  void append_output(std::span<const std::byte> bytes);
  std::size_t take_input(std::span<std::byte> bytes);

  const std::unique_ptr<Engine> engine_;
  LinkKey key_;       // of the connector
  FindKey find_key_;  // of the acceptor
  bool unknown_key_ = false;
  bool established_ = false;
  bool failed_ = false;
  std::uint64_t records_per_key_;
  std::uint64_t records_ = 0;  // encrypted with the current key

  std::unique_ptr<std::byte[]> input_;
  std::size_t input_capacity_ = 0;
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  std::unique_ptr<std::byte[]> output_;
  std::size_t output_capacity_ = 0;
  std::size_t output_begin_ = 0;
  std::size_t output_end_ = 0;
  std::unique_ptr<std::byte[]> gathered_;  // one record of several ranges
};

}  // namespace lockstep
