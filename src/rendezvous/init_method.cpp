#include "rendezvous/init_method.h"

#include <fmt/format.h>

#include "rendezvous/whole_number.h"

namespace lockstep {
namespace {

constexpr std::string_view kExpected =
    "env://, tcp://host:port?rank=R&world_size=N or file:///path?rank=R&world_size=N";

Status malformed(std::string_view url, const std::string& what) {
  return Status(StatusCode::invalid_argument, fmt::format("init_method '{}': {}; expected {}", url, what, kExpected));
}

Status parse_query_item(std::string_view url, std::string_view item, InitMethod* method) {
  const auto equals = item.find('=');
  const auto key = item.substr(0, equals);
  const bool is_rank = key == "rank";
  if (!is_rank && key != "world_size") {
    return malformed(url, fmt::format("the query has the key '{}', which is neither rank nor world_size", key));
  }
  if (equals == std::string_view::npos) return malformed(url, fmt::format("the query key '{}' has no value", key));
  auto& target = is_rank ? method->rank : method->world_size;
  if (target) return malformed(url, fmt::format("the query key '{}' is given twice", key));
  const auto number =
      parse_whole_number(key, item.substr(equals + 1), is_rank ? 0 : 1, is_rank ? kMaxWorldSize - 1 : kMaxWorldSize);
  if (!number.ok()) return number.status().with_context(fmt::format("init_method '{}'", url));
  target = *number;
  return {};
}

Status parse_query(std::string_view url, std::string_view query, InitMethod* method) {
  while (true) {
    const auto end = query.find('&');
    LOCKSTEP_RETURN_IF_ERROR(parse_query_item(url, query.substr(0, end), method));
    if (end == std::string_view::npos) break;
    query.remove_prefix(end + 1);
  }
  if (method->rank && method->world_size && *method->rank >= *method->world_size) {
    return malformed(url, fmt::format("rank={} is not below world_size={}", *method->rank, *method->world_size));
  }
  return {};
}

Status parse_host_and_port(std::string_view url, std::string_view text, InitMethod* method) {
  const bool bracketed = text.starts_with('[');
  const auto colon = bracketed ? text.find("]:") : text.find(':');
  if (colon == std::string_view::npos) return malformed(url, fmt::format("'{}' has no port", text));
  method->host = bracketed ? text.substr(1, colon - 1) : text.substr(0, colon);
  const auto port_text = text.substr(colon + (bracketed ? 2 : 1));
  if (method->host.empty()) return malformed(url, "the host is empty");
  if (!bracketed && port_text.find(':') != std::string_view::npos) {
    return malformed(url, fmt::format("'{}' has several colons; an IPv6 address must be in brackets", text));
  }
  const auto port = parse_whole_number("port", port_text, 1, 65535);
  if (!port.ok()) return port.status().with_context(fmt::format("init_method '{}'", url));
  method->port = static_cast<std::uint16_t>(*port);
  return {};
}

}  // namespace

Result<InitMethod> parse_init_method(std::string_view url) {
  InitMethod method;
  // A NUL would truncate names in every system call.
  if (url.find('\0') != std::string_view::npos) return malformed(url, "it contains a NUL character");
  const auto scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return malformed(url, "it has no scheme");
  const auto scheme = url.substr(0, scheme_end);
  auto rest = url.substr(scheme_end + 3);
  const auto question = rest.find('?');
  const bool has_query = question != std::string_view::npos;
  const auto query = has_query ? rest.substr(question + 1) : std::string_view();
  rest = rest.substr(0, question);

  if (scheme == "env") {
    if (!rest.empty() || has_query) return malformed(url, "env:// must not be followed by anything");
    return method;
  }
  if (scheme == "tcp") {
    method.scheme = InitScheme::tcp;
    if (rest.ends_with('/')) rest.remove_suffix(1);
    LOCKSTEP_RETURN_IF_ERROR(parse_host_and_port(url, rest, &method));
  } else if (scheme == "file") {
    method.scheme = InitScheme::file;
    if (!rest.starts_with('/')) return malformed(url, fmt::format("the path '{}' is not absolute", rest));
    if (rest.ends_with('/')) return malformed(url, fmt::format("the path '{}' names no file", rest));
    method.path = rest;
  } else {
    return malformed(url, fmt::format("the scheme '{}' is unknown", scheme));
  }
  if (has_query) LOCKSTEP_RETURN_IF_ERROR(parse_query(url, query, &method));
  return method;
}

}  // namespace lockstep
