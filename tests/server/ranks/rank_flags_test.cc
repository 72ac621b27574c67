// Which flags of rank processes go together.
#include "server/commands/rank_flags.h"

#include <gtest/gtest.h>

#include "parallel/gloo_group.h"

namespace moe {
namespace {

ServerOptions Front(int size) {
  ServerOptions options;
  options.engine.expert_parallel_size = size;
  return options;
}

ServerOptions Joining(const std::string& target) {
  ServerOptions options;
  options.ranks.join = target;
  return options;
}

// That it is refused, naming all of these.
void Refused(const ServerOptions& options, std::initializer_list<const char*> names) {
  const Status status = CheckRankFlags(options);
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const char* name : names) EXPECT_NE(status.message().find(name), std::string::npos) << status << ": " << name;
}

TEST(RankFlags, Defaults) {
  EXPECT_TRUE(CheckRankFlags(ServerOptions()).ok());
  EXPECT_FALSE(HasRankProcesses(ServerOptions()));
  ServerOptions four = Front(4);
  EXPECT_TRUE(HasRankProcesses(four));
  EXPECT_EQ(LocalRanks(four), 4);
  EXPECT_TRUE(CheckRankFlags(four).ok());
  four.engine.rank_transport = "gloo";
  EXPECT_EQ(CheckRankFlags(four).code(), HasGloo() ? absl::StatusCode::kOk : absl::StatusCode::kUnimplemented);
  four.ranks.in_process = true;
  EXPECT_FALSE(HasRankProcesses(four));
  EXPECT_TRUE(CheckRankFlags(four).ok());
  EXPECT_TRUE(CheckRankFlags(Joining("127.0.0.1:7000")).ok());
}

TEST(RankFlags, ContradictionsOfAFront) {
  ServerOptions options = Front(1);
  options.ranks.local_ranks = 1;
  Refused(options, {"--local-ranks", "--expert-parallel-size 1"});
  options = Front(2);
  options.ranks.in_process = true;
  options.ranks.port = 7000;
  Refused(options, {"--rank-port", "--ranks-in-process"});
  options = Front(1);
  options.ranks.rejoin = true;
  Refused(options, {"--rejoin", "--join"});
  options = Front(2);
  options.ranks.local_ranks = 3;
  Refused(options, {"--local-ranks 3", "--expert-parallel-size 2"});
  options = Front(2);
  options.ranks.host = "10.0.0.1";
  Refused(options, {"--rank-host 10.0.0.1", "--rank-secret-file", "--rank-tls-cert"});
  options.ranks.secret_file = "secret";
  Refused(options, {"--rank-host 10.0.0.1", "--trusted-rank-network"});
  options.ranks.trusted_network = true;
  EXPECT_TRUE(CheckRankFlags(options).ok());
  options.ranks.host = "0.0.0.0";
  Refused(options, {"--rank-host 0.0.0.0", "--rank-interface"});
  options.ranks.interface = "eth0";
  EXPECT_TRUE(CheckRankFlags(options).ok());
  options.ranks.trusted_network = false;
  Refused(options, {"--rank-interface eth0", "--trusted-rank-network"});
  options.ranks.local_ranks = 0;  // no rank here: no rows here
  EXPECT_TRUE(CheckRankFlags(options).ok());
  options.ranks.tls_cert = "cert";
  Refused(options, {"--rank-tls-cert", "--rank-tls-key", "--rank-tls-ca"});
}

TEST(RankFlags, ContradictionsOfARank) {
  ServerOptions options = Joining("127.0.0.1:7000");
  options.ranks.local_ranks = 1;
  Refused(options, {"--local-ranks", "--join"});
  options = Joining("127.0.0.1:7000");
  options.ranks.in_process = true;
  Refused(options, {"--ranks-in-process", "--join"});
  options = Joining("127.0.0.1:7000");
  options.engine.expert_parallel_size = 2;
  Refused(options, {"--expert-parallel-size", "--join"});
  options = Joining("10.0.0.1:7000");
  Refused(options, {"--join 10.0.0.1:7000", "--rank-secret-file"});
  options.ranks.secret_file = "secret";
  Refused(options, {"--join 10.0.0.1:7000", "--rank-host", "--rank-interface"});
  options.ranks.host = "10.0.0.2";
  Refused(options, {"--rank-host 10.0.0.2", "--trusted-rank-network"});
  options.ranks.trusted_network = true;
  EXPECT_TRUE(CheckRankFlags(options).ok());
  options.ranks.host = "somewhere";
  Refused(options, {"--rank-host somewhere"});
}

TEST(RankFlags, HostAndPort) {
  EXPECT_EQ(ParseHostPort("10.0.0.1:70")->host, "10.0.0.1");
  EXPECT_EQ(ParseHostPort("[::1]:70")->host, "::1");
  EXPECT_EQ(ParseHostPort("front.example:65535")->port, 65535);
  for (const char* text :
       {"", "host", ":70", "host:", "host:0", "host:65536", "host:7x", "::1:70", "[]:70", "host:-1"}) {
    EXPECT_FALSE(ParseHostPort(text).ok()) << text;
  }
}

}  // namespace
}  // namespace moe
