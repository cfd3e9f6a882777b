// Two ends of a stream, and someone between them who sees and changes every byte.
#include "base/net/tls_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using Record = std::vector<std::byte>;

const Secret kStreamSecret("0123456789abcdef0123456789abcdef");

std::vector<Record> take_records(TlsStream& from) {
  std::vector<Record> records;
  auto output = from.output();
  const std::size_t all = output.size();
  while (output.size() >= 5) {
    const std::size_t size =
        5 + (std::to_integer<std::size_t>(output[3]) << 8) + std::to_integer<std::size_t>(output[4]);
    records.emplace_back(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(size));
    output = output.subspan(size);
  }
  from.consume_output(all);
  return records;
}

// What the receiver gets from these bytes; stops at an error.
std::string deliver(TlsStream& to, std::span<const std::byte> bytes) {
  std::string text;
  while (!bytes.empty() && !to.failed()) {
    const auto space = to.input_space();
    const std::size_t size = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), size);
    to.add_input(size);
    bytes = bytes.subspan(size);
    if (!to.established()) {
      [[maybe_unused]] const Status status = to.handshake();
      if (!to.established()) continue;
    }
    char buffer[4096];
    while (const std::size_t got = to.decrypt(std::as_writable_bytes(std::span(buffer)))) text.append(buffer, got);
  }
  return text;
}

struct Link {
  explicit Link(const std::string& group = "group", const Secret& acceptor_secret = kStreamSecret) {
    const ConnectionIdentity identity{.role = "data", .group = group, .from_rank = 1, .to_rank = 0};
    ring = LinkKeyRing(acceptor_secret, {identity});
    connector = value_or_throw(TlsStream::connector(derive_link_key(kStreamSecret, identity)));
    acceptor = value_or_throw(TlsStream::acceptor([this](std::span<const std::byte> name) -> const LinkKey* {
      const auto* entry = ring.find(name);
      return entry != nullptr ? &entry->key : nullptr;
    }));
  }
  // Runs the handshake; `change` sees each record on its way.
  template <typename Change>
  bool shake(const Change& change) {
    for (int i = 0; i < 4 && !(connector->established() && acceptor->established()); ++i) {
      status = connector->handshake();
      for (Record& record : take_records(*connector)) {
        change(record);
        deliver(*acceptor, record);
      }
      if (!acceptor->established()) [[maybe_unused]]
        const Status accepted = acceptor->handshake();
      for (Record& record : take_records(*acceptor)) {
        change(record);
        deliver(*connector, record);
      }
      if (connector->failed() || acceptor->failed()) break;
    }
    return connector->established() && acceptor->established();
  }
  bool shake() {
    return shake([](Record&) {});
  }
  std::vector<Record> send(const std::vector<std::string>& texts) const {
    std::vector<Record> records;
    for (const std::string& text : texts) {
      const iovec range{const_cast<char*>(text.data()), text.size()};
      EXPECT_EQ(connector->encrypt(std::span(&range, 1)), text.size());
      for (Record& record : take_records(*connector)) records.push_back(std::move(record));
    }
    return records;
  }
  Status status;
  LinkKeyRing ring;
  std::unique_ptr<TlsStream> connector;
  std::unique_ptr<TlsStream> acceptor;
};

TEST(TlsStream, CarriesBytesThatCannotBeRead) {
  Link link;
  ASSERT_TRUE(link.shake());
  const std::string text = "known plaintext, known plaintext, known plaintext";
  const auto records = link.send({text});
  ASSERT_EQ(records.size(), 1U);
  const std::string wire(reinterpret_cast<const char*>(records[0].data()), records[0].size());
  EXPECT_EQ(wire.find("known"), std::string::npos);
  EXPECT_EQ(deliver(*link.acceptor, records[0]), text);
  EXPECT_FALSE(link.acceptor->failed());
}

TEST(TlsStream, ARecordMayArriveByteByByte) {
  Link link;
  ASSERT_TRUE(link.shake());
  std::string text;
  const Record record = link.send({"slow"})[0];
  for (const std::byte byte : record) text += deliver(*link.acceptor, std::span(&byte, 1));
  EXPECT_EQ(text, "slow");
}

TEST(TlsStream, EveryFlippedBitOfARecordIsAnError) {
  for (std::size_t bit = 0; bit < 8 * (5 + 5 + 17); bit += 3) {
    Link link;
    ASSERT_TRUE(link.shake());
    auto records = link.send({"hello", "world"});
    ASSERT_EQ(records[0].size(), 27U);
    records[0][bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    std::string got = deliver(*link.acceptor, records[0]);
    got += deliver(*link.acceptor, records[1]);
    EXPECT_EQ(got, "") << "bit " << bit;
  }
}

TEST(TlsStream, LostRepeatedReorderedAndForeignRecordsAreErrors) {
  const std::vector<std::string> texts{"one", "two", "three"};
  const auto outcome = [&](const std::vector<std::size_t>& order) {
    Link link;
    EXPECT_TRUE(link.shake());
    const auto records = link.send(texts);
    std::string got;
    for (const std::size_t i : order) got += deliver(*link.acceptor, records[i]);
    return std::pair(got, link.acceptor->failed());
  };
  EXPECT_EQ(outcome({0, 1, 2}), std::pair(std::string("onetwothree"), false));
  EXPECT_EQ(outcome({0, 2}), std::pair(std::string("one"), true));
  EXPECT_EQ(outcome({0, 0, 1}), std::pair(std::string("one"), true));
  EXPECT_EQ(outcome({1, 0}), std::pair(std::string(), true));

  Link link;
  Link other("another group");
  ASSERT_TRUE(link.shake() && other.shake());
  EXPECT_EQ(deliver(*link.acceptor, other.send({"spliced"})[0]), "");
  EXPECT_TRUE(link.acceptor->failed());
}

TEST(TlsStream, RecordsOfAnEarlierConnectionOfTheSameLinkAreErrors) {
  Link earlier;
  Link link;
  ASSERT_TRUE(earlier.shake() && link.shake());
  EXPECT_EQ(deliver(*link.acceptor, earlier.send({"again"})[0]), "");
  EXPECT_TRUE(link.acceptor->failed());
}

TEST(TlsStream, AChangedHandshakeFails) {
  int records = 0;
  ASSERT_TRUE(Link().shake([&](Record&) { ++records; }));
  for (int changed = 0; changed < records; ++changed) {
    for (const double where : {0.3, 0.6, 0.9}) {
      Link link;
      int i = 0;
      const bool both = link.shake([&](Record& record) {
        if (i++ != changed || record[0] == std::byte{0x14}) return;  // change_cipher_spec means nothing in TLS 1.3
        record[5 + static_cast<std::size_t>(where * static_cast<double>(record.size() - 5))] ^= std::byte{0x40};
      });
      if (both) {
        // Only a record without meaning can be changed unnoticed.
        EXPECT_EQ(deliver(*link.acceptor, link.send({"intact"})[0]), "intact");
      }
    }
  }
}

TEST(TlsStream, AnotherSecretFailsOnBothSides) {
  Link link("group", Secret("another secret of thirty-two byt"));
  EXPECT_FALSE(link.shake());
  EXPECT_FALSE(link.acceptor->established());
  EXPECT_FALSE(link.connector->established());
}

TEST(TlsStream, KeysAreReplacedWithoutAGap) {
  Link link;
  ASSERT_TRUE(link.shake());
  link.connector->set_records_per_key(3);
  std::string expected;
  std::string got;
  std::size_t records = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string text = "record " + std::to_string(i) + "; ";
    expected += text;
    for (const Record& record : link.send({text})) {
      got += deliver(*link.acceptor, record);
      ++records;
    }
  }
  EXPECT_EQ(got, expected);
  EXPECT_GT(records, 20U) << "no key update was sent";
}

TEST(LinkKey, MatchesTheVectorOfRfc5869) {
  std::vector<std::byte> salt, input(22, std::byte{0x0b}), info;
  for (int i = 0; i <= 12; ++i) salt.push_back(static_cast<std::byte>(i));
  for (int i = 0xf0; i <= 0xf9; ++i) info.push_back(static_cast<std::byte>(i));
  std::string text;
  for (const std::byte byte : hkdf_sha256(salt, input, info)) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  EXPECT_EQ(text, "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

}  // namespace
}  // namespace lockstep
