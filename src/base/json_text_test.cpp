#include "base/json_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(JsonText, EscapesWhatJsonRequires) {
  EXPECT_EQ(json_string(""), R"("")");
  EXPECT_EQ(json_string("a \"b\" \\ c"), R"("a \"b\" \\ c")");
  EXPECT_EQ(json_string("line\nline\tend\r"), R"("line\nline\tend\u000d")");
  EXPECT_EQ(json_string(std::string_view("\0\x1b\x7f", 3)), R"("\u0000\u001b\u007f")");
}

TEST(JsonText, KeepsUtf8AndReplacesOtherBytes) {
  EXPECT_EQ(json_string("Größe 損失 🙂"), "\"Größe 損失 🙂\"");
  EXPECT_EQ(json_string("a\xff"
                        "b"),
            "\"a\xEF\xBF\xBD"
            "b\"");
  EXPECT_EQ(json_string("\xe6\x90"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace lockstep
