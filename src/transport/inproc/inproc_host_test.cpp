#include "transport/inproc/inproc_host.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// As in a group of processes, where the listener of a rank that has left is closed.
TEST(InprocLinks, ARankThatHasLeftCannotBeConnected) {
  auto meshes = value_or_throw(make_inproc_meshes(2, "group#1"));
  const Deadline soon = Deadline::after(std::chrono::seconds(10));
  const LinkName to_one{1, kMessagesRole, 0};
  Channel before = value_or_throw(meshes[0].links->connect(to_one, soon));
  meshes[1].links.reset();
  EXPECT_EQ(meshes[0].links->connect(to_one, soon).status().code(), StatusCode::unavailable);
  std::byte byte{};
  EXPECT_EQ(receive_all(before, std::span(&byte, 1), soon).code(), StatusCode::peer_lost) << "it was never taken";
}

}  // namespace
}  // namespace lockstep
