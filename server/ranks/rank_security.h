// Who may join: the shared secret, TLS material, and what the front checks before it reads a word.
#ifndef MOE_SERVER_RANKS_RANK_SECURITY_H_
#define MOE_SERVER_RANKS_RANK_SECURITY_H_

#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "parallel/base/status.h"

namespace grpc {
class ServerContext;
}

namespace moe {

inline constexpr const char* kRankSecretKey = "moe-rank-secret";    // metadata of Join
inline constexpr const char* kRankProcessKey = "moe-rank-process";  // the same
inline constexpr const char* kRankJoinedKey = "moe-rank-joined";    // metadata of the front's answer: admitted
inline constexpr const char* kRankSecretVariable = "MOE_RANK_SECRET";
inline constexpr const char* kRankProcessVariable = "MOE_RANK_PROCESS";

// Mutual TLS, all PEM. Either all three or none.
struct RankTls {
  std::string certificate;
  std::string key;
  std::string ca;  // whose certificates the other side must have
  bool given() const { return !certificate.empty(); }
};

// Whether a host is this machine alone: "localhost", 127.0.0.0/8, ::1. Other names are not resolved: false.
bool IsLoopbackHost(const std::string& host);

// The first line of a file. INVALID_ARGUMENT unless it is 16 … 4096 printable ASCII characters; a warning in the log
// when others than the owner may read it.
StatusOr<std::string> ReadRankSecret(const std::string& path);
// The three files; all empty: none. INVALID_ARGUMENT for some but not all, naming the flags.
StatusOr<RankTls> ReadRankTls(const std::string& cert_path, const std::string& key_path, const std::string& ca_path);

// 64 hexadecimal digits from the system's random source.
std::string RandomSecret();

// In time that depends on the lengths alone.
bool SecretsEqual(std::string_view a, std::string_view b);

// The front's door. Thread-safe.
class RankGate {
 public:
  struct Options {
    std::string secret;        // of ranks from elsewhere; empty: none needed (TLS, or loopback)
    std::string child_secret;  // of processes that the front started; empty: there are none
    bool tls = false;          // ranks from elsewhere have to come through TLS
    bool only_children = false;
  };
  explicit RankGate(Options options) : options_(std::move(options)) {}

  // OK or UNAUTHENTICATED, logged once an address. *process: what it says to be, only from children.
  Status Check(const grpc::ServerContext& context, std::string* process);

 private:
  bool Admits(const grpc::ServerContext& context, std::string* process) const;

  const Options options_;
  std::mutex mutex_;
  std::set<std::string> refused_;  // guarded by mutex_: addresses, as many as are worth a line
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_SECURITY_H_
