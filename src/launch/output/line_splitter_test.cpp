#include "launch/output/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> split(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  const auto on_line = [&](std::string_view line) { lines.emplace_back(line); };
  LineSplitter splitter;
  for (const auto& piece : pieces) splitter.feed(piece, on_line);
  splitter.finish(on_line);
  return lines;
}

TEST(LineSplitter, JoinsPiecesIntoLines) {
  EXPECT_THAT(split({"one\ntw", "o", "\n", "three\n"}), ElementsAre("one", "two", "three"));
}

TEST(LineSplitter, KeepsEmptyLinesAndTheLastWithoutAnEnd) {
  EXPECT_THAT(split({"\n\na"}), ElementsAre("", "", "a"));
  EXPECT_THAT(split({"a\n"}), ElementsAre("a"));
}

TEST(LineSplitter, TreatsCarriageReturnsAsEndsOfLines) {
  EXPECT_THAT(split({"10%\r20%\r", "\ndone\r\n"}), ElementsAre("10%", "20%", "done"));
}

TEST(LineSplitter, CutsVeryLongLines) {
  const std::string longest(LineSplitter::kMaxLine, 'x');
  EXPECT_THAT(split({longest + "\nb\n"}), ElementsAre(longest, "b"));
  EXPECT_THAT(split({longest + longest + "yz\n"}), ElementsAre(longest, longest, "yz"));
  EXPECT_THAT(split({longest.substr(1), "xy\n"}), ElementsAre(longest, "y"));
}

TEST(LineSplitter, DoesNotDependOnHowTheBytesArrive) {
  const std::string text = "a\r\n\nbc\rd\n" + std::string(LineSplitter::kMaxLine + 3, 'z') + "\ne";
  const auto whole = split({text});
  for (const std::size_t size : {1U, 2U, 3U, 7U, 65536U}) {
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < text.size(); i += size) pieces.push_back(text.substr(i, size));
    EXPECT_EQ(split(pieces), whole) << size;
  }
}

}  // namespace
}  // namespace lockstep::launch
