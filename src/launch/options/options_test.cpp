#include "launch/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<RunOptions> parse(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  const auto environment = [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return parse_run_options(arguments, environment, 8);
}

TEST(RunOptions, DefaultsAreOneRankOnOneNode) {
  const auto options = parse({"./train"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->nproc, 1);
  EXPECT_EQ(options->max_nodes, 1);
  EXPECT_EQ(options->max_restarts, 0);
  EXPECT_TRUE(options->endpoints.empty());
  EXPECT_EQ(options->program, "./train");
  EXPECT_TRUE(options->bind);
}

TEST(RunOptions, NamesMayHaveDashesOrUnderscoresAndValuesAnEqualsSign) {
  for (const char* name : {"--nproc-per-node", "--nproc_per_node", "--nproc-per_node"}) {
    EXPECT_EQ(parse({name, "3", "p"})->nproc, 3) << name;
    EXPECT_EQ(parse({std::string(name) + "=3", "p"})->nproc, 3) << name;
  }
}

TEST(RunOptions, ArgumentsAfterTheProgramBelongToTheProgram) {
  const auto options = parse({"--nproc-per-node", "2", "./train", "--nproc-per-node", "7", "--", "-x", "--help"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->nproc, 2);
  EXPECT_THAT(options->arguments, ElementsAre("--nproc-per-node", "7", "--", "-x", "--help"));
  EXPECT_EQ(parse({"--no-bind", "--", "--odd-name", "x"})->program, "--odd-name");
}

TEST(RunOptions, AutoAndCpuAreOneRankPerCore) {
  EXPECT_EQ(parse({"--nproc-per-node", "auto", "p"})->nproc, 8);
  EXPECT_EQ(parse({"--nproc-per-node", "cpu", "p"})->nproc, 8);
}

TEST(RunOptions, EveryOptionHasAVariableAndTheCommandLineTakesPrecedence) {
  const Variables variables = {{"PET_NPROC_PER_NODE", "4"},
                               {"PET_NNODES", "2:3"},
                               {"PET_RDZV_ENDPOINT", "a:1"},
                               {"PET_RDZV_ID", "job"},
                               {"PET_MAX_RESTARTS", "5"},
                               {"PET_NO_BIND", "1"},
                               {"PET_STANDALONE", "0"},
                               {"PET_LOG_DIR", "logs"},
                               {"PET_TEE", "3"},
                               {"PET_RDZV_BACKEND", "c10d"},
                               {"PET_RDZV_CONF", "timeout=7,read_timeout=1,last_call_timeout=2"}};
  const auto options = parse({"--max-restarts", "1", "p"}, variables);
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->nproc, 4);
  EXPECT_EQ(options->min_nodes, 2);
  EXPECT_EQ(options->max_nodes, 3);
  ASSERT_EQ(options->endpoints.size(), 1U);
  EXPECT_EQ(options->endpoints[0].host, "a");
  EXPECT_EQ(options->endpoints[0].port, 1);
  EXPECT_EQ(options->run_id, "job");
  EXPECT_EQ(options->max_restarts, 1);
  EXPECT_FALSE(options->bind);
  EXPECT_EQ(options->log_dir, "logs");
  EXPECT_TRUE(options->tee.contains(1, 2));
  EXPECT_EQ(options->start_timeout, std::chrono::seconds(7));
  EXPECT_EQ(options->last_call_timeout, std::chrono::seconds(2));
}

TEST(RunOptions, TheEndpointIsAcceptedInBothFormsOfTorchrun) {
  const auto texts = [](const Result<RunOptions>& options) {
    std::vector<std::string> result;
    for (const auto& endpoint : options->endpoints)
      result.push_back(endpoint.host + " " + std::to_string(endpoint.port));
    return result;
  };
  EXPECT_THAT(texts(parse({"--nnodes=2", "--rdzv-endpoint=a", "p"})), ElementsAre("a 29400"));
  EXPECT_THAT(texts(parse({"--nnodes=2", "--rdzv-endpoint=[::1]:5,b", "p"})), ElementsAre("::1 5", "b 29400"));
  EXPECT_THAT(texts(parse({"--nnodes=2", "--node-rank=1", "--master-addr=a", "--master-port=6", "p"})),
              ElementsAre("a 6"));
  EXPECT_THAT(texts(parse({"--master-port=6", "p"})), ElementsAre("127.0.0.1 6"));
}

TEST(RunOptions, ElasticJobsMayRestartByDefault) {
  EXPECT_EQ(parse({"--elastic", "p"})->max_restarts, 10);
  EXPECT_EQ(parse({"--elastic", "--max-restarts=0", "p"})->max_restarts, 0);
  EXPECT_EQ(parse({"--elastic", "--min-ranks=2", "--nproc-per-node=2", "p"})->min_ranks, 2);
}

TEST(RunOptions, StreamsAreSelectedForAllOrForSingleRanks) {
  const auto options = parse({"--nproc-per-node=3", "-t", "0:1,2:3", "-r", "2", "p"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_TRUE(options->tee.contains(0, 1));
  EXPECT_FALSE(options->tee.contains(0, 2));
  EXPECT_FALSE(options->tee.contains(1, 1));
  EXPECT_TRUE(options->tee.contains(2, 2));
  EXPECT_TRUE(options->redirects.contains(1, 2));
}

TEST(RunOptions, TheDashboardMayHaveAPlaceAfterAnEqualsSign) {
  EXPECT_FALSE(parse({"p"})->dashboard);
  const auto alone = parse({"--dashboard", "p"});
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->dashboard, "");
  EXPECT_EQ(alone->program, "p");
  EXPECT_EQ(parse({"--dashboard=[::1]:8080", "p"})->dashboard, "[::1]:8080");
  EXPECT_EQ(parse({"p"}, {{"PET_DASHBOARD", "1"}})->dashboard, "");
  EXPECT_FALSE(parse({"p"}, {{"PET_DASHBOARD", "0"}})->dashboard);
  EXPECT_THAT(parse({"--dashboard=nonsense", "p"}).status().message(), HasSubstr("--dashboard"));
}

TEST(RunOptions, HelpListsEveryOptionAndNeedsNoOther) {
  EXPECT_TRUE(parse({"--help"})->help);
  EXPECT_TRUE(parse({"--nproc-per-node", "2", "-h"})->help);
  EXPECT_THAT(run_help(), HasSubstr("--local-ranks-filter"));
}

TEST(RunOptions, InvalidInputCausesAOneLineMessage) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{}, "the program is missing"},
      {{"--nproc-per-node", "0", "p"}, "--nproc-per-node is '0'"},
      {{"--nproc-per-node", "-1", "p"}, "--nproc-per-node is '-1'"},
      {{"--nproc-per-node", "many", "p"}, "--nproc-per-node is 'many'"},
      {{"--nproc-per-node", "gpu", "p"}, "trains on CPUs"},
      {{"--nproc-per-node"}, "--nproc-per-node needs a value"},
      {{"--nprocs-per-node", "2", "p"}, "did you mean --nproc-per-node?"},
      {{"--epochs", "2", "p"}, "go after the program"},
      {{"-x", "p"}, "unknown option '-x'"},
      {{"--standalone=1", "p"}, "takes no value"},
      {{"--nnodes", "0", "p"}, "--nnodes is '0'"},
      {{"--nnodes", "3:2", "p"}, "MIN at most MAX"},
      {{"--nnodes", "1:2:3", "p"}, "MIN:MAX"},
      {{"--nnodes", "2", "p"}, "there is no endpoint at which the nodes meet"},
      {{"--nnodes", "2", "--rdzv-endpoint", "a:0", "p"}, "port 0"},
      {{"--nnodes", "2", "--rdzv-endpoint", "a:b", "p"}, "--rdzv-endpoint"},
      {{"--nnodes", "2", "--standalone", "p"}, "--standalone means one node"},
      {{"--standalone", "--rdzv-endpoint", "a:1", "p"}, "omit --rdzv-endpoint"},
      {{"--node-rank", "1", "p"}, "--node-rank is 1, but --nnodes is 1"},
      {{"--rdzv-endpoint", "a:1", "--master-addr", "b", "p"}, "give the endpoint only once"},
      {{"--rdzv-endpoint", "a:1", "--master-port", "2", "p"}, "give the endpoint only once"},
      {{"--rdzv-backend", "etcd", "p"}, "'etcd'"},
      {{"--master-port", "65536", "p"}, "65536"},
      {{"--max-restarts", "-1", "p"}, "--max-restarts"},
      {{"--min-ranks", "2", "p"}, "--min-ranks needs --elastic"},
      {{"--elastic", "--min-ranks", "2", "p"}, "at most 1 ranks"},
      {{"--shutdown-timeout", "soon", "p"}, "a number of seconds"},
      {{"--tee", "4", "p"}, "--tee is '4'"},
      {{"--redirects", "0:1,x", "p"}, "--redirects is '0:1,x'"},
      {{"--redirects", "1:1", "p"}, "names local rank 1"},
      {{"--local-ranks-filter", "0,,1", "p"}, "--local-ranks-filter is '0,,1'"},
      {{"--local-ranks-filter", "3", "p"}, "names local rank 3"},
      {{"--serve-store", "maybe", "p"}, "auto, yes or no"},
      {{"--module", "--no-python", "p"}, "--no-python does not"},
      {{"--rdzv-id", "a/b", "p"}, "must not contain a /"},
  };
  for (const auto& [arguments, text] : cases) {
    const auto options = parse(arguments);
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_EQ(options.status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(options.status().message(), HasSubstr(text));
    EXPECT_EQ(options.status().message().find('\n'), std::string::npos);
  }
  EXPECT_THAT(parse({"p"}, {{"PET_NNODES", "x"}}).status().message(), HasSubstr("PET_NNODES is 'x'"));
}

}  // namespace
}  // namespace lockstep::launch
