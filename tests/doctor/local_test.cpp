// What `lockstep doctor` finds on one host, with limits and libraries that the test chooses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "doctor/doctor_process.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  nlohmann::json rows;  // of this host
  std::string report;
};

// `before`: a shell command that prepares the process.
Outcome examine(const std::string& before, const std::string& arguments, const Environment& environment = {}) {
  ProcessSet process =
      start_program(1, {"sh", "-c", fmt::format("{}\nexec {} doctor --json {}", before, lockstep_program(), arguments)},
                    {.environment = environment});
  const auto end = process.wait(0, in_seconds(60));
  Outcome outcome{.exit_code = end ? end->code : -1, .rows = {}, .report = process.report()};
  const auto document = nlohmann::json::parse(process.output(0), nullptr, false);
  if (document.is_object()) {
    outcome.rows = document.at("hosts").at(0).at("checks");
    EXPECT_EQ(document.at("exit_code"), outcome.exit_code);
  }
  return outcome;
}

TEST(DoctorOfOneHost, HasARowForEachCheck) {
  const Outcome outcome = examine("", "");
  for (const char* check :
       {"open files", "shared memory", "/dev/shm", "locked memory", "huge pages", "cores", "control group",
        "NUMA nodes", "threads per rank", "BLAS", "LibTorch", "MPI", "NCCL", "secret", "routes", "address of ranks"}) {
    EXPECT_FALSE(row_of(outcome.rows, check).is_null()) << check << "\n" << outcome.report;
  }
  for (const auto& row : outcome.rows) {
    EXPECT_EQ(row.at("level") == "green", row.at("advice") == "") << row.dump();
  }
}

TEST(DoctorOfOneHost, TooFewDescriptorsAreRed) {
  const Outcome outcome = examine("ulimit -n 64", "--nproc-per-node 64");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.report;
  const auto row = row_of(outcome.rows, "open files");
  ASSERT_FALSE(row.is_null()) << outcome.report;
  EXPECT_EQ(row.at("level"), "red");
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("64"));
  EXPECT_THAT(row.at("advice").get<std::string>(), HasSubstr("ulimit -n"));
}

TEST(DoctorOfOneHost, TheReferenceBlasIsYellow) {
  const std::string folder = "/usr/lib/x86_64-linux-gnu/blas";
  if (::access((folder + "/libblas.so.3").c_str(), R_OK) != 0)
    GTEST_SKIP() << "the reference BLAS (Debian's libblas3) is not installed";
  const Outcome outcome = examine("", "", {{"LD_LIBRARY_PATH", folder}});
  const auto row = row_of(outcome.rows, "BLAS");
  ASSERT_FALSE(row.is_null()) << outcome.report;
  EXPECT_EQ(row.at("level"), "yellow");
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("reference BLAS"));
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("Gflop/s"));
  EXPECT_THAT(row.at("advice").get<std::string>(), HasSubstr("libopenblas0-pthread"));
}

TEST(DoctorOfOneHost, OpenBlasIsGreen) {
  const std::string folder = "/usr/lib/x86_64-linux-gnu/openblas-pthread";
  if (::access((folder + "/libblas.so.3").c_str(), R_OK) != 0) GTEST_SKIP() << "OpenBLAS is not installed";
  const Outcome outcome = examine("", "", {{"LD_LIBRARY_PATH", folder}});
  EXPECT_EQ(row_of(outcome.rows, "BLAS").at("level"), "green") << outcome.report;
}

TEST(DoctorOfOneHost, MoreThreadsThanCoresAreYellow) {
  const Outcome outcome = examine("", "--nproc-per-node 2", {{"OMP_NUM_THREADS", "512"}});
  const auto row = row_of(outcome.rows, "threads per rank");
  ASSERT_FALSE(row.is_null()) << outcome.report;
  EXPECT_EQ(row.at("level"), "yellow");
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("1024 threads"));
}

TEST(DoctorOfOneHost, AShortSecretIsRedAWeakOneYellowAndAMissingOneRedIfThereAreSeveralHosts) {
  const Outcome refused = examine("", "", {{"LOCKSTEP_SECRET", "gnat"}});
  EXPECT_EQ(row_of(refused.rows, "secret").at("level"), "red") << "Lockstep refuses it: " << refused.report;
  EXPECT_THAT(refused.report, ::testing::Not(HasSubstr("gnat")));
  const Outcome weak = examine("", "", {{"LOCKSTEP_SECRET", "gnatgnatgnatgnatgnatgnatgnatgnat"}});
  EXPECT_EQ(row_of(weak.rows, "secret").at("level"), "yellow") << weak.report;
  EXPECT_THAT(weak.report, ::testing::Not(HasSubstr("gnat")));
  const Outcome missing = examine("unset LOCKSTEP_SECRET", "--hosts 192.0.2.1,192.0.2.2 --timeout 1");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_EQ(row_of(missing.rows, "secret").at("level"), "red") << missing.report;
  EXPECT_THAT(row_of(missing.rows, "secret").at("advice").get<std::string>(), HasSubstr("openssl rand"));
}

TEST(DoctorOfOneHost, AnInterfaceThatDoesNotExistIsRed) {
  const Outcome outcome = examine("", "", {{"LOCKSTEP_INTERFACE", "eth77"}});
  const auto row = row_of(outcome.rows, "address of ranks");
  ASSERT_FALSE(row.is_null()) << outcome.report;
  EXPECT_EQ(row.at("level"), "red");
  EXPECT_THAT(row.at("value").get<std::string>(), HasSubstr("lo (127.0.0.1)")) << "the message lists what there is";
}

}  // namespace
}  // namespace lockstep::testing
