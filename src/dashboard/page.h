// The page, which the build embeds: dashboard/page.html.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::dashboard {

std::string_view page_html();

// A Content-Security-Policy that allows exactly the scripts and styles that are in the page itself, named by their
// hashes, and connections to the server that it came from. Pure.
std::string page_policy(std::string_view html);

}  // namespace lockstep::dashboard
