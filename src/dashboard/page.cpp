#include "dashboard/page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

namespace lockstep::dashboard {
namespace {

// "'sha256-...'", as browsers compute it over an element's content.
std::string hash_source(std::string_view content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  ::EVP_Digest(content.data(), content.size(), digest.data(), &size, ::EVP_sha256(), nullptr);
  std::array<unsigned char, std::size_t{2} * EVP_MAX_MD_SIZE> text{};
  const int length = ::EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(size));
  return fmt::format("'sha256-{}'", std::string_view(reinterpret_cast<const char*>(text.data()), std::size_t(length)));
}

// The hashes of all elements of one kind, which have no attributes; "'none'" if there is none.
std::string sources(std::string_view html, std::string_view element) {
  const std::string begin = fmt::format("<{}>", element), end = fmt::format("</{}>", element);
  std::string hashes;
  for (std::size_t from = html.find(begin); from != std::string_view::npos; from = html.find(begin, from)) {
    from += begin.size();
    const std::size_t to = html.find(end, from);
    if (to == std::string_view::npos) break;
    if (!hashes.empty()) hashes += ' ';
    hashes += hash_source(html.substr(from, to - from));
    from = to;
  }
  return hashes.empty() ? "'none'" : hashes;
}

}  // namespace

std::string page_policy(std::string_view html) {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      sources(html, "script"), sources(html, "style"));
}

}  // namespace lockstep::dashboard
