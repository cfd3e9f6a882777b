#include "dashboard/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::dashboard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Page, ItsPolicyNamesScriptsAndStylesByTheirHashes) {
  // printf 'let a' | openssl dgst -sha256 -binary | base64
  const std::string policy = page_policy("<html><style>b{}</style><script>let a</script></html>");
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-IfEXP/8HLuXoAiy0hZVrCAcjcLsZqYFpLOHDGj8enqE='; "));
  EXPECT_THAT(policy, HasSubstr("style-src 'sha256-7yqHVAesot11p6HczDsgKRipvI5UPgs97z80zNXlans='; "));
  EXPECT_THAT(policy, ::testing::StartsWith("default-src 'none'; "));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(page_policy("<p>"), HasSubstr("script-src 'none'; style-src 'none'; "));
  EXPECT_THAT(page_policy("<script>x"), HasSubstr("script-src 'none';"));
}

TEST(Page, NeedsNothingFromElsewhere) {
  const std::string page(page_html());
  EXPECT_THAT(page, ::testing::StartsWith("<!doctype html>"));
  for (const char* foreign : {" src=\"", "<script src", "@import", "url(http", "<link rel=\"stylesheet\""})
    EXPECT_THAT(page, Not(HasSubstr(foreign))) << foreign;
  EXPECT_THAT(page_policy(page), Not(HasSubstr("script-src 'none'")));
  EXPECT_THAT(page_policy(page), Not(HasSubstr("unsafe")));
}

}  // namespace
}  // namespace lockstep::dashboard
