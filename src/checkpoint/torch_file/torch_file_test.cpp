#include "checkpoint/torch_file/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "checkpoint/torch_file/crc32.h"
#include "checkpoint/torch_file/pickle.h"
#include "checkpoint/torch_file/zip.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

std::span<const std::byte> view(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::vector<ZipEntry> entries;
  for (const auto& [name, data] : members) entries.push_back({name, data.size(), crc32(view(data))});
  const ZipLayout layout = lay_out_zip(entries);
  std::string file;
  for (std::size_t i = 0; i < members.size(); ++i) file += layout.heads[i] + members[i].second;
  return file + layout.tail;
}

// A file with `pickle` as its dictionary, and 16 bytes of data.
std::string file_with(const std::string& pickle) {
  return zip_of({{"archive/data.pkl", pickle}, {"archive/data/0", std::string(16, '\1')}});
}

std::string torch_file() {
  const std::string first(24, 'a'), second(6, 'b');
  const std::vector<TensorInfo> infos = {{"layer.weight", Dtype::f32, {2, 3}}, {"layer.bias", Dtype::bf16, {3}}};
  const std::vector<std::span<const std::byte>> data = {view(first), view(second)};
  const auto layout = lay_out_torch_file(infos, data);
  return layout->heads[0] + first + layout->heads[1] + second + layout->tail;
}

std::string error_of(const std::string& file, std::string_view key = {}) {
  const auto parsed = parse_torch_file(view(file), key);
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(Crc32, IsThatOfZip) {
  EXPECT_EQ(crc32(view("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc32({}), 0U);
}

TEST(TorchFileTest, ReadsWhatItWrites) {
  const std::string file = torch_file();
  const auto parsed = parse_torch_file(view(file));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  ASSERT_EQ(parsed->tensors.size(), 2U);
  const auto& weight = parsed->tensors.at("layer.weight");
  EXPECT_EQ(weight.info, (TensorInfo{"layer.weight", Dtype::f32, {2, 3}}));
  EXPECT_EQ(weight.strides, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(weight.storage.size(), 24U);
  EXPECT_EQ(weight.storage[23], std::byte{'a'});
  // Tensors in a file that is mapped are aligned.
  EXPECT_EQ((weight.storage.data() - view(file).data()) % 64, 0);
  EXPECT_EQ(parsed->tensors.at("layer.bias").info.dtype, Dtype::bf16);
}

TEST(TorchFileTest, AFileWithoutTensorsIsEmpty) {
  const auto layout = lay_out_torch_file({}, {});
  const auto parsed = parse_torch_file(view(layout->tail));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_TRUE(parsed->tensors.empty());
}

// Of 40 GiB, without the data: what a reader needs is in the heads.
TEST(TorchFileTest, HeadsOfLargeFilesHaveTheirSizesIn64Bits) {
  constexpr std::uint64_t kBytes = std::uint64_t{20} << 30;
  const std::vector<ZipEntry> entries = {{"a/0", kBytes, 1}, {"a/1", kBytes, 2}, {"a/2", 5, 3}};
  const ZipLayout layout = lay_out_zip(entries);
  const auto number_at = [](const std::string& text, std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, text.data() + at, 8);
    return value;
  };
  EXPECT_EQ(number_at(layout.heads[0], 30 + 3 + 4), kBytes);
  // The third member: its size fits, its offset does not.
  const std::size_t third = layout.tail.rfind(std::string("PK\1\2", 4));
  const std::uint64_t offset = 2 * kBytes + layout.heads[0].size() + layout.heads[1].size();
  EXPECT_EQ(number_at(layout.tail, third + 46 + 3 + 4), offset);
  EXPECT_EQ((offset + layout.heads[2].size()) % 64, 0U);
}

TEST(TorchFileTest, EveryBitThatChangesIsNoticedOrHarmless) {
  const std::string file = torch_file();
  const auto original = parse_torch_file(view(file));
  int accepted = 0;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const auto parsed = parse_torch_file(view(damaged));
    if (!parsed.ok()) continue;
    ++accepted;  // a field that does not matter, such as the time
    for (const auto& [name, entry] : original->tensors) {
      ASSERT_TRUE(parsed->tensors.contains(name)) << "bit " << bit;
      const auto& other = parsed->tensors.at(name);
      ASSERT_EQ(other.info, entry.info) << "bit " << bit;
      ASSERT_TRUE(std::equal(entry.storage.begin(), entry.storage.end(), other.storage.begin(), other.storage.end()));
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(TorchFileTest, EveryFileThatWasCutOffIsRefused) {
  const std::string file = torch_file();
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(error_of(file.substr(0, size)), "") << "the first " << size << " bytes";
  }
}

TEST(TorchFileTest, AFunctionThatIsNotDataIsRefusedByName) {
  const std::string call = "\x80\2cos\nsystem\n(X\4\0\0\0exittR."s;
  EXPECT_THAT(error_of(file_with(call)), HasSubstr("it contains a os.system, and only tensors"));
}

TEST(TorchFileTest, AContainerThatContainsItselfIsNoProblem) {
  const std::string pickle = "\x80\2}q\0X\1\0\0\0dh\0s."s;  // d = {}; d["d"] = d
  EXPECT_THAT(error_of(file_with(pickle)), HasSubstr("has no tensors, but \"d\" (a dictionary)"));
}

TEST(TorchFileTest, ATensorOutsideOfItsDataIsRefused) {
  // Four elements of f32.
  const auto file = [](const std::string& offset, const std::string& size, const std::string& stride) {
    return file_with("\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"s +
                     "X\1\0\0\0"s + "0X\3\0\0\0cpuK\4tQ"s + offset + "(" + size + "t(" + stride + "t\x89}tRs.");
  };
  const std::string zero = "K\0"s;
  EXPECT_EQ(error_of(file(zero, "K\4", "K\1")), "");
  EXPECT_EQ(error_of(file("K\1", "K\2", "K\2")), "");  // elements 1 and 3
  EXPECT_THAT(error_of(file("K\1", "K\4", "K\1")), HasSubstr("outside of its data"));
  EXPECT_THAT(error_of(file(zero, "K\3", "K\2")), HasSubstr("outside of its data"));
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_THAT(error_of(file(zero, huge, huge)), HasSubstr("outside of its data"));
  EXPECT_THAT(error_of(file("J\xff\xff\xff\xff", "K\1", "K\1")), HasSubstr("outside of its data"));
}

// Its bytes in the file are those of the tensor that it is a view of.
TEST(TorchFileTest, AConjugatedTensorIsRefused) {
  const auto file = [](const std::string& metadata) {
    return file_with("\x80\2}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\n"s +
                     "ComplexFloatStorage\nX\1\0\0\0"s + "0X\3\0\0\0cpuK\2tQK\0(K\2t(K\1t\x89}"s + metadata + "tRs."s);
  };
  EXPECT_EQ(error_of(file("")), "");
  EXPECT_EQ(error_of(file("}")), "");
  EXPECT_EQ(error_of(file("N")), "");
  EXPECT_THAT(error_of(file("}X\4\0\0\0conj\x88s"s)), HasSubstr("conjugated"));
  EXPECT_THAT(error_of(file("}X\3\0\0\0neg\x88s"s)), HasSubstr("tensor.resolve_conj().resolve_neg()"));
}

TEST(TorchFileTest, TheMemoryForAPickleIsLimited) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const auto refused = [](const std::string& repeated) {
    std::string pickle = "\x80\2(N\x94"s;
    for (int i = 0; i < 100'000; ++i) pickle += repeated;
    const auto parsed = parse_pickle(view(pickle + "t."), kMost);
    return !parsed.ok() && parsed.status().message().find("more values than any model") != std::string::npos;
  };
  EXPECT_TRUE(refused("N"));
  EXPECT_TRUE(refused("]"));
  EXPECT_TRUE(refused("\x94"s));
  EXPECT_TRUE(refused("h\0"s));
  EXPECT_TRUE(refused("("));
  const auto refused_copies = [](const std::string& start, const std::string& repeated) {
    std::string pickle = "\x80\2("s + start;
    for (int i = 0; i < 3000; ++i) pickle += repeated;
    const auto parsed = parse_pickle(view(pickle + "t."), kMost);
    return !parsed.ok() && parsed.status().message().find("more values than any model") != std::string::npos;
  };
  const std::string text = "X\xfa\0\0\0"s + std::string(250, 'm');
  EXPECT_TRUE(refused_copies(text + "\x94", "h\0h\0\x93"s));
  EXPECT_FALSE(refused_copies("X\1\0\0\0m\x94"s, "h\0h\0\x93"s));
  const auto storage = [](const std::string& key) {
    return "(X\7\0\0\0storagectorch\nFloatStorage\n"s + key + "X\3\0\0\0cpuK\2t\x94"s;
  };
  EXPECT_TRUE(refused_copies(storage(text), "h\0Q"s));
  EXPECT_FALSE(refused_copies(storage("X\1\0\0\0k"s), "h\0Q"s));
  std::string deep = "\x80\2N"s;
  for (int i = 0; i < 100'000; ++i) deep += '\x85';
  EXPECT_TRUE(parse_pickle(view(deep + ".")).ok());
}

TEST(TorchFileTest, OtherFilesAreRecognised) {
  EXPECT_THAT(error_of("hello"), HasSubstr("not a file that torch.save writes"));
  EXPECT_THAT(error_of(zip_of({{"a/data.pkl", "x"}, {"a/constants.pkl", "x"}})), HasSubstr("TorchScript archive"));
  EXPECT_THAT(error_of(zip_of({{"a/other", "x"}})), HasSubstr("no member data.pkl"));
  EXPECT_THAT(error_of("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s), HasSubstr("PyTorch before 1.6"));
  EXPECT_THAT(error_of(zip_of({{"a/data.pkl", "x"}, {"a/byteorder", "big"}})), HasSubstr("not little-endian"));
}

// As other programs write it, whose headers are not padded to 64 bytes.
TEST(TorchFileTest, ASafetensorsFileIsNotTakenForAPickle) {
  for (const std::size_t header_bytes : {0x80UL, 0x180UL, 0x280UL, 0x8080UL}) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &header_bytes, sizeof(header_bytes));
    file += "{}" + std::string(header_bytes - 2, ' ');
    EXPECT_FALSE(is_torch_file(view(file))) << header_bytes;
    EXPECT_TRUE(parse_safetensors(view(file)).ok());
  }
  EXPECT_TRUE(is_torch_file(view("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s)));
  EXPECT_TRUE(is_torch_file(view("\x80\x04}."s)));
  EXPECT_TRUE(is_torch_file(view(torch_file())));
  EXPECT_FALSE(is_torch_file(view(""s)));
}

TEST(TorchFileTest, RandomBytesInThePickleNeverCrash) {
  std::mt19937 random(1);
  const std::string operations = "}])(tNKMJGXqrhjcQRbaesu.\x80\x85\x86\x87\x88\x89\x8a\x8c\x93\x94";
  for (int round = 0; round < 20000; ++round) {
    std::string pickle;
    for (std::size_t i = 0; i < 1 + random() % 60; ++i) {
      pickle.push_back(random() % 4 != 0 ? operations[random() % operations.size()] : static_cast<char>(random() % 4));
    }
    static_cast<void>(parse_pickle(view(pickle)));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
