#include "support/process_resources.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "base/unique_fd.h"

namespace lockstep::testing {
namespace {

TEST(ProcessResources, SeesFdsThreadsAndSharedMappings) {
  const auto before = ProcessResources::now();
  constexpr std::size_t kBytes = 4096;
  {
    const UniqueFd fd(::memfd_create("seen", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
    void* mapping = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(mapping, MAP_FAILED);
    std::promise<void> end;
    std::thread thread([&] { end.get_future().wait(); });
    const auto during = ProcessResources::now();
    EXPECT_EQ(during.fds, before.fds + 1);
    EXPECT_EQ(during.threads, before.threads + 1);
    EXPECT_EQ(during.shared_mappings, before.shared_mappings + 1);
    EXPECT_THAT(describe(during), ::testing::HasSubstr("memfd:seen"));
    end.set_value();
    thread.join();
    ::munmap(mapping, kBytes);
  }
  EXPECT_EQ(ProcessResources::settle(before, Deadline::after(std::chrono::seconds(20))), before);
}

}  // namespace
}  // namespace lockstep::testing
