#include "parallel/gloo_group.h"

#include <gloo/transport/tcp/device.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "parallel/gloo_communicator.h"
#include "parallel/sigpipe_guard.h"

namespace moe {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Whether this host has the address. (Gloo loses memory when it has not.)
Status TryToBind(const GroupOptions& options) {
  MOE_ASSIGN_OR_RETURN(const SocketAddress address, LocalAddress(options));
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = fd >= 0 && bind(fd, address.get(), address.length) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (bound) return absl::OkStatus();
  return absl::UnavailableError(std::generic_category().message(error));
}

// What a rank publishes: its nonce, then the address at which it awaits each rank (all of one size; none for itself).
struct Card {
  Nonce nonce = {};
  std::vector<std::string> addresses;
};

std::string Encode(const Card& card) {
  std::string bytes(card.nonce.begin(), card.nonce.end());
  for (const std::string& address : card.addresses) bytes += address;
  return bytes;
}

// The part of a card that rank `reader` of `size` needs: the nonce and the address that awaits it.
StatusOr<std::pair<Nonce, std::vector<char>>> Decode(const std::string& bytes, int writer, int reader, int size) {
  Nonce nonce;
  const size_t addresses = bytes.size() - nonce.size();
  if (bytes.size() <= nonce.size() || addresses % (size - 1) != 0) {
    return absl::UnavailableError(Cat("rank ", writer, " published ", bytes.size(), " bytes that are no addresses"));
  }
  std::copy_n(bytes.begin(), nonce.size(), nonce.begin());
  const size_t each = addresses / (size - 1);
  const size_t index = reader < writer ? reader : reader - 1;
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(nonce.size() + index * each);
  return std::pair(nonce, std::vector<char>(begin, begin + static_cast<std::ptrdiff_t>(each)));
}

std::string Key(uint64_t generation, int rank) {
  return Cat("gloo/", generation, "/", rank);
}

// Connects all pairs of `context`; nonces: what each rank published, ours included.
Status Connect(const GroupOptions& options, RendezvousStore& store, gloo::transport::Context& context,
               Clock::time_point deadline, std::vector<Nonce>& nonces) {
  Card card;
  MOE_ASSIGN_OR_RETURN(card.nonce, RandomNonce());
  nonces[options.rank] = card.nonce;
  for (int r = 0; r < options.size; ++r) {
    if (r == options.rank) continue;
    const std::vector<char> address = context.createPair(r)->address().bytes();
    card.addresses.emplace_back(address.begin(), address.end());
  }
  MOE_RETURN_IF_ERROR(store.Set(Key(options.generation, options.rank), Encode(card)));

  for (int r = 0; r < options.size; ++r) {
    if (r == options.rank) continue;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    const auto bytes = store.Wait(Key(options.generation, r), std::max(left, milliseconds(0)));
    if (!bytes.ok()) {
      return BlameRank(Annotate(bytes.status(), Cat("rank ", r, " did not come to generation ", options.generation)),
                       r);
    }
    MOE_ASSIGN_OR_RETURN(auto its, Decode(*bytes, r, options.rank, options.size));
    nonces[r] = its.first;
    try {
      context.getPair(r)->connect(its.second);
    } catch (const std::exception& e) {
      if (Clock::now() >= deadline) {
        return BlameRank(
            absl::DeadlineExceededError(Cat("rank ", r, " did not connect to rank ", options.rank, " for generation ",
                                            options.generation, " within ", options.rendezvous_timeout.count(), " ms")),
            r);
      }
      return BlameRank(absl::UnavailableError(
                           Cat("rank ", r, " cannot be reached for generation ", options.generation, ": ", e.what())),
                       r);
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool HasGloo() {
  return true;
}

StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GroupOptions& options, RendezvousStore& store) {
  MOE_RETURN_IF_ERROR(CheckGroupOptions(options));
  const Clock::time_point deadline = Clock::now() + options.rendezvous_timeout;
  const SigpipeGuard guard;  // the device's thread inherits it
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::transport::Context> context;
  std::vector<Nonce> nonces(options.size);
  if (options.size > 1) {
    const std::string where = ListeningPlace(options);
    if (!options.address.empty()) MOE_RETURN_IF_ERROR(Annotate(TryToBind(options), where));
    try {
      gloo::transport::tcp::attr attr;
      attr.hostname = options.address;
      attr.iface = options.interface;
      device = gloo::transport::tcp::CreateDevice(attr);
      context = device->createContext(options.rank, options.size);
      // Gloo waits five times as long for a connection.
      context->setTimeout(std::max(options.rendezvous_timeout / 5, milliseconds(1)));
      MOE_RETURN_IF_ERROR(Connect(options, store, *context, deadline, nonces));
    } catch (const std::exception& e) {
      return absl::UnavailableError(Cat(where, ": ", e.what()));
    }
  }
  auto communicator = std::make_unique<GlooCommunicator>(std::move(device), std::move(context), options.rank,
                                                         options.size, options.timeout);
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  MOE_RETURN_IF_ERROR(communicator->Greet(options.generation, nonces, std::max(left, milliseconds(1))));
  return std::unique_ptr<Communicator>(std::move(communicator));
}

}  // namespace moe
