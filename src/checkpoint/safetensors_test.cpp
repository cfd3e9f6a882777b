#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "checkpoint/testing/test_folder.h"

namespace lockstep::checkpoint {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;

// A file with this header and so many bytes of data.
std::string file_with(const std::string& header, std::size_t data_bytes = 0) {
  const std::uint64_t size = header.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
  return file + header + std::string(data_bytes, 'x');
}

std::string header_refusal(const std::string& file) {
  const auto parsed = parse_safetensors(bytes_of(file));
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.status().code(), StatusCode::protocol_error);
  return parsed.status().message();
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const std::vector<TensorInfo> infos = {{"b", Dtype::u8, {3}},       {"a", Dtype::f32, {2, 2}},
                                         {"s", Dtype::f64, {}},       {"e", Dtype::i64, {0, 5}},
                                         {"ü\"\n", Dtype::bf16, {1}}, {"c", Dtype::boolean, {1}}};
  const auto layout = lay_out_safetensors(infos, {{"format", "pt"}, {"k", "v"}});
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(layout->head.size() % kDataAlignment, 0U);
  EXPECT_EQ(layout->data_bytes, 3U + 16 + 8 + 0 + 2 + 1);
  std::string file = layout->head;
  for (const std::size_t index : layout->order) {
    std::size_t bytes = element_bytes(infos[index].dtype);
    for (const auto size : infos[index].shape) bytes *= static_cast<std::size_t>(size);
    EXPECT_EQ(bytes == 0 ? 0 : file.size() % element_bytes(infos[index].dtype), 0U) << infos[index].name;
    file.append(bytes, static_cast<char>('0' + index));
  }
  const auto parsed = parse_safetensors(bytes_of(file));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->metadata, (Metadata{{"format", "pt"}, {"k", "v"}}));
  ASSERT_EQ(parsed->tensors.size(), infos.size());
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const auto& entry = parsed->tensors.at(infos[i].name);
    EXPECT_EQ(entry.info, infos[i]);
    for (const std::byte byte : entry.data) EXPECT_EQ(static_cast<char>(byte), static_cast<char>('0' + i));
  }
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
  const auto layout = lay_out_safetensors({});
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(parse_safetensors(bytes_of(layout->head)).ok());
}

TEST(Safetensors, ReadsTheExampleOfTheSpecification) {
  const std::string file =
      file_with(R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]},"__metadata__":{"foo":"bar"}})", 16);
  const auto parsed = parse_safetensors(bytes_of(file));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->tensors.at("test").info, (TensorInfo{"test", Dtype::i32, {2, 2}}));
  EXPECT_EQ(parsed->tensors.at("test").info.describe(), "I32 [2, 2]");
  EXPECT_EQ(parsed->metadata.at("foo"), "bar");
}

TEST(Safetensors, EveryDtypeNameIsSupported) {
  for (int i = 0; i <= static_cast<int>(Dtype::c64); ++i) {
    EXPECT_EQ(parse_dtype(to_string(static_cast<Dtype>(i))), static_cast<Dtype>(i));
  }
  EXPECT_FALSE(parse_dtype("F4").has_value());
}

TEST(Safetensors, AFileCutOffAnywhereIsRefused) {
  const auto layout = lay_out_safetensors(std::vector<TensorInfo>{{"a", Dtype::f32, {2, 2}}, {"b", Dtype::u8, {3}}});
  ASSERT_TRUE(layout.ok());
  const std::string file = layout->head + std::string(layout->data_bytes, 'x');
  EXPECT_EQ(header_refusal(file), "accepted");
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(header_refusal(file.substr(0, size)), "accepted") << size;
  EXPECT_THAT(header_refusal(file + "y"), HasSubstr("1 bytes after the last tensor"));
}

TEST(Safetensors, ReportsWhatIsWrongWithAHeader) {
  const auto one = [](const std::string& fields, std::size_t bytes) {
    return file_with("{\"t\":{" + fields + "}}", bytes);
  };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(header_refusal(one(good, 8)), "accepted");
  EXPECT_THAT(header_refusal(one(good, 7)), HasSubstr("which has only 7 bytes"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F4","shape":[2],"data_offsets":[0,8])", 8)), HasSubstr("the type F4"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", 8)),
              HasSubstr("F32 [3], but the bytes 0 to 8"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", 8)), HasSubstr("8 to 0"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])", 12)), HasSubstr("with a gap"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0])", 8)), HasSubstr("fewer than two"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])", 8)),
              HasSubstr("more than two"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", 8)), HasSubstr("negative"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", 8)), HasSubstr("not whole"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])", 8)), HasSubstr("a list"));
  EXPECT_THAT(header_refusal(one(R"("dtype":"F32","shape":[2])", 8)), HasSubstr("all of dtype"));
  EXPECT_THAT(header_refusal(one(good + R"(,"x":1)", 8)), HasSubstr("a field \"x\""));
  EXPECT_THAT(header_refusal(one(good + R"(,"shape":[2])", 8)), HasSubstr("\"shape\" appears twice"));
  EXPECT_THAT(
      header_refusal(one(R"("dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,0])", 0)),
      HasSubstr("but the bytes 0 to 0"));
  EXPECT_THAT(header_refusal(file_with("{\"t\":{" + good + "},\"t\":{" + good + "}}", 8)),
              HasSubstr("\"t\" appears twice"));
  EXPECT_THAT(header_refusal(file_with("{\"t\":{" + good + "},\"u\":{" + good + "}}", 8)),
              HasSubstr("inside the one before"));
  EXPECT_THAT(header_refusal(file_with(R"({"__metadata__":{"a":1}})")), HasSubstr("a number at \"a\""));
  EXPECT_THAT(header_refusal(file_with("[]")), HasSubstr("begin with"));
  EXPECT_THAT(header_refusal(file_with(" {}")), HasSubstr("begin with"));
  EXPECT_THAT(header_refusal(file_with("{} x")), HasSubstr("not JSON at byte"));
  EXPECT_EQ(header_refusal(file_with("{}   ")), "accepted");
  EXPECT_THAT(header_refusal(file_with("\x80\x81{}")), HasSubstr("begin with"));
  EXPECT_THAT(header_refusal(file_with("{\"\x80\":1}")), HasSubstr("not JSON at byte 3"));
  EXPECT_THAT(header_refusal(file_with("{\"t\":{\"dtype\":\"F\xff\"}}")), HasSubstr("not JSON at byte"));
  EXPECT_THAT(header_refusal(file_with(R"({"t":)" + std::string(100'000, '['))), HasSubstr("a list"));
  std::string huge = file_with("{}");
  const std::uint64_t size = kMaxSafetensorsHeader + 1;
  std::memcpy(huge.data(), &size, sizeof(size));
  EXPECT_THAT(header_refusal(huge), HasSubstr("more than 100000000 are not allowed"));
}

TEST(Safetensors, RefusesToWriteWhatTheFormatCannotHold) {
  const auto refused = [](std::vector<TensorInfo> infos) { return lay_out_safetensors(infos).status().message(); };
  EXPECT_THAT(refused({{"a", Dtype::u8, {1}}, {"a", Dtype::f32, {1}}}), HasSubstr("named \"a\""));
  EXPECT_THAT(refused({{"__metadata__", Dtype::u8, {1}}}), HasSubstr("__metadata__"));
  EXPECT_THAT(refused({{"\xff", Dtype::u8, {1}}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({{"a", Dtype::u8, {-1}}}), HasSubstr("larger than a file"));
  EXPECT_THAT(refused({{"a", Dtype::f64, {std::int64_t{1} << 62}}}), HasSubstr("larger than a file"));
}

}  // namespace
}  // namespace lockstep::checkpoint
