#include "server/ranks/rank_security.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

#include "parallel/base/log.h"

namespace moe {
namespace {

constexpr size_t kMinSecret = 16;
constexpr size_t kMaxSecret = 4096;
constexpr size_t kMaxRefusedAddresses = 256;

StatusOr<std::string> ReadSmallFile(const char* flag, const std::string& path) {
  constexpr std::streamsize kMaxBytes = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidError(flag, ": cannot read ", path);
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), kMaxBytes);
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || !file.eof()) return InvalidError(flag, ": ", path, " is no file of at most 1 MiB");
  return text;
}

std::string Metadata(const grpc::ServerContext& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

// "ipv4:10.0.0.1:4711" → "ipv4:10.0.0.1".
std::string PeerAddress(const grpc::ServerContext& context) {
  const std::string peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

}  // namespace

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

StatusOr<std::string> ReadRankSecret(const std::string& path) {
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile("--rank-secret-file", path));
  std::string secret = text.substr(0, text.find_first_of("\r\n"));
  const bool printable = std::all_of(secret.begin(), secret.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (secret.size() < kMinSecret || secret.size() > kMaxSecret || !printable) {
    return InvalidError("--rank-secret-file: the first line of ", path, " must be ", kMinSecret, " to ", kMaxSecret,
                        " printable ASCII characters without spaces");
  }
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    MOE_LOG(kWarning) << "--rank-secret-file: others than its owner can read " << path;
  }
  return secret;
}

StatusOr<RankTls> ReadRankTls(const std::string& cert_path, const std::string& key_path, const std::string& ca_path) {
  RankTls tls;
  const bool none = cert_path.empty() && key_path.empty() && ca_path.empty();
  if (none) return tls;
  if (cert_path.empty() || key_path.empty() || ca_path.empty()) {
    return InvalidError("--rank-tls-cert, --rank-tls-key and --rank-tls-ca go together: both sides show a certificate");
  }
  MOE_ASSIGN_OR_RETURN(tls.certificate, ReadSmallFile("--rank-tls-cert", cert_path));
  MOE_ASSIGN_OR_RETURN(tls.key, ReadSmallFile("--rank-tls-key", key_path));
  MOE_ASSIGN_OR_RETURN(tls.ca, ReadSmallFile("--rank-tls-ca", ca_path));
  const auto check = [](const char* flag, const std::string& path, const std::string& pem) {
    if (pem.find("-----BEGIN ") != std::string::npos) return Status();
    return InvalidError(flag, ": ", path, " is not PEM");
  };
  MOE_RETURN_IF_ERROR(check("--rank-tls-cert", cert_path, tls.certificate));
  MOE_RETURN_IF_ERROR(check("--rank-tls-key", key_path, tls.key));
  MOE_RETURN_IF_ERROR(check("--rank-tls-ca", ca_path, tls.ca));
  return tls;
}

std::string RandomSecret() {
  std::random_device device;
  std::string text;
  for (int i = 0; i < 8; ++i) {
    char part[9];
    std::snprintf(part, sizeof(part), "%08x", static_cast<unsigned>(device()));
    text += part;
  }
  return text;
}

bool SecretsEqual(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  size_t difference = a.size() ^ b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<uint8_t>(a[i]) ^ static_cast<uint8_t>(b[i % b.size()]);
  }
  return difference == 0;
}

bool RankGate::Admits(const grpc::ServerContext& context, std::string* process) const {
  const std::string given = Metadata(context, kRankSecretKey);
  if (!options_.child_secret.empty() && SecretsEqual(given, options_.child_secret)) {
    *process = Metadata(context, kRankProcessKey);
    return true;
  }
  if (options_.only_children) return false;
  if (options_.tls) {
    const auto auth = context.auth_context();
    if (auth == nullptr || !auth->IsPeerAuthenticated()) return false;
  }
  return options_.secret.empty() || SecretsEqual(given, options_.secret);
}

Status RankGate::Check(const grpc::ServerContext& context, std::string* process) {
  if (Admits(context, process)) return Status();
  const std::string address = PeerAddress(context);
  bool log = false;
  {
    std::lock_guard lock(mutex_);
    log = refused_.size() < kMaxRefusedAddresses && refused_.insert(address).second;
  }
  if (log) {
    MOE_LOG(kWarning) << "refused a rank from " << address
                      << ": it does not have this front's secret or certificate; said once for this address";
  }
  return absl::UnauthenticatedError("this front takes only ranks that have its secret or certificate");
}

}  // namespace moe
