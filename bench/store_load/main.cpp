// The load of bench/store_clients: many clients of a store at once, from one thread, in torch's protocol or in ours;
// and our server alone, in a process of its own.
//
//   store_load serve WORLD                       prints PORT and token, serves until its standard input ends
//   store_load torch    PORT CLIENTS WINDOW      validate and ping, set, wait and get, as torch's Python client does
//   store_load dslaunch PORT CLIENTS WINDOW TOKEN   handshake with proof, set, get
//
// WINDOW clients are under way at a time; each stays connected to the end. Prints the seconds from the first connect to
// the last answer, and the processor time that the load itself took.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/token_proof.hpp"
#include "rendezvous/torch_protocol.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;

namespace {

const std::string kValue(64, 'v');  // an address or an id

void raise_descriptor_limit(size_t needed) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < needed) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("{} open files are allowed here and {} are needed: raise `ulimit -Hn`",
                                static_cast<uint64_t>(limit.rlim_cur), needed));
  }
}

// What a client says and hears. Each step sends and then waits for so many bytes.
class Conversation {
 public:
  virtual ~Conversation() = default;
  // Bytes of the next step given the answer to the last, and the size of the answer to expect; nothing: done.
  virtual std::string next(const std::string& answer, size_t& answer_bytes) = 0;

 protected:
  static void expect(bool good, const char* what) {
    if (!good) throw Error(ExitCode::kInternal, std::string("the server's answer is wrong: ") + what);
  }
  int step_ = 0;
};

class TorchConversation final : public Conversation {
 public:
  TorchConversation(int index, const std::string&) : index_(index) {}

  std::string next(const std::string& answer, size_t& answer_bytes) override {
    auto nonce = static_cast<uint32_t>(index_);
    auto key = torch_wire::encode_value(fmt::format("/key/{}", index_));
    switch (step_++) {
      case 0:
        answer_bytes = 4;
        return request(torch_wire::Type::kValidate).u32(torch_wire::kValidationMagic).take() +
               request(torch_wire::Type::kPing).u32(nonce).take();
      case 1:
        expect(answer == wire::Writer().u32(nonce).take(), "ping");
        answer_bytes = 1;
        return request(torch_wire::Type::kSet).bytes(key).bytes(torch_wire::encode_value(kValue)).take() +
               request(torch_wire::Type::kWait).u64(1).bytes(key).take();
      case 2:
        expect(answer == std::string(1, '\0'), "wait");
        answer_bytes = 8 + kValue.size();
        return request(torch_wire::Type::kGet).bytes(key).take();
      default:
        expect(answer == torch_wire::encode_value(kValue), "get");
        return {};
    }
  }

 private:
  static wire::Writer request(torch_wire::Type type) { return wire::Writer().u8(static_cast<uint8_t>(type)); }
  const int index_;
};

class OurConversation final : public Conversation {
 public:
  OurConversation(int index, const std::string& world_and_token) : index_(index) {
    auto space = world_and_token.find(' ');
    world_ = static_cast<uint32_t>(std::stoul(world_and_token.substr(0, space)));
    token_ = *from_hex(world_and_token.substr(space + 1));
  }

  std::string next(const std::string& answer, size_t& answer_bytes) override {
    auto key = fmt::format("key/{}", index_);
    switch (step_++) {
      case 0:
        nonce_ = fresh_nonce();
        answer_bytes = wire::kHelloBytes;
        return wire::encode(wire::Hello{wire::kVersion, nonce_});
      case 1: {
        server_nonce_ = wire::decode_hello(answer).nonce;
        wire::ClientProof claim{{}, static_cast<uint32_t>(index_), world_, "host"};
        claim.proof =
            client_proof(token_, nonce_, server_nonce_, wire::proven_part(std::string_view(wire::encode(claim))));
        answer_bytes = wire::kServerProofBytes;
        return wire::encode(claim);
      }
      case 2:
        expect(same_proof(wire::decode_server_proof(answer).proof, server_proof(token_, nonce_, server_nonce_)),
               "proof");
        answer_bytes = wire::kLengthBytes + 6;
        return wire::encode(wire::Frame{wire::Type::kSet, 1, wire::Writer().text(key).text(kValue).take()});
      case 3:
        expect(answer.back() == 0, "set");
        answer_bytes = wire::kLengthBytes + 6 + 4 + kValue.size();
        return wire::encode(wire::Frame{wire::Type::kGet, 2, wire::Writer().text(key).u64(wire::kNoTimeout).take()});
      default:
        expect(answer.ends_with(wire::Writer().text(kValue).take()), "get");
        return {};
    }
  }

 private:
  const int index_;
  uint32_t world_ = 0;
  std::vector<uint8_t> token_;
  wire::Nonce nonce_{}, server_nonce_{};
};

struct Client {
  UniqueFd fd;
  std::unique_ptr<Conversation> conversation;
  std::string answer;
  size_t answer_bytes = 0;
};

template <class Conversation>
class Load {
 public:
  Load(uint16_t port, int num_clients, int window, std::string secret)
      : port_(port),
        num_clients_(num_clients),
        window_(window),
        secret_(std::move(secret)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    clients_.resize(static_cast<size_t>(num_clients));
  }

  double run() {
    auto began = std::chrono::steady_clock::now();
    std::array<epoll_event, 256> events{};
    while (num_done_ < num_clients_) {
      while (num_begun_ < num_clients_ && num_begun_ - num_done_ < window_) begin(num_begun_++);
      int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 30000);
      if (ready == 0)
        throw TimeoutError(
            fmt::format("{} of {} clients are done and no answer came for 30 s", num_done_, num_clients_));
      for (int i = 0; i < ready; ++i) serve(static_cast<int>(events[static_cast<size_t>(i)].data.u32));
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

 private:
  void begin(int index) {
    Client& client = clients_[static_cast<size_t>(index)];
    client.fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!client.fd.valid()) throw SystemError("socket", "a client");
    client.conversation = std::make_unique<Conversation>(index, secret_);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(client.fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
        errno != EINPROGRESS) {
      throw SystemError("connect", fmt::format("127.0.0.1:{}", port_));
    }
    watch(EPOLL_CTL_ADD, index, EPOLLOUT);
  }

  void watch(int operation, int index, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u32 = static_cast<uint32_t>(index);
    ::epoll_ctl(epoll_.get(), operation, clients_[static_cast<size_t>(index)].fd.get(), &event);
  }

  void serve(int index) {
    Client& client = clients_[static_cast<size_t>(index)];
    if (client.answer_bytes == 0) {  // connected
      watch(EPOLL_CTL_MOD, index, EPOLLIN);
      return go_on(client);
    }
    std::array<char, 512> piece{};
    size_t missing = client.answer_bytes - client.answer.size();
    ssize_t got = ::recv(client.fd.get(), piece.data(), std::min(missing, piece.size()), 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) throw Error(ExitCode::kInternal, fmt::format("the server ended the connection of client {}", index));
    client.answer.append(piece.data(), static_cast<size_t>(got));
    if (client.answer.size() == client.answer_bytes) go_on(client);
  }

  void go_on(Client& client) {
    std::string bytes = client.conversation->next(std::exchange(client.answer, {}), client.answer_bytes);
    if (bytes.empty()) {
      ++num_done_;
      return;
    }
    if (::send(client.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
      throw SystemError("send", "a client");
    }
  }

  const uint16_t port_;
  const int num_clients_, window_;
  const std::string secret_;
  UniqueFd epoll_;
  std::vector<Client> clients_;
  int num_begun_ = 0, num_done_ = 0;
};

template <class Conversation>
void run_load(char** arguments, std::string secret) {
  int num_clients = std::atoi(arguments[1]);
  raise_descriptor_limit(static_cast<size_t>(num_clients) + 64);
  Load<Conversation> load(static_cast<uint16_t>(std::atoi(arguments[0])), num_clients, std::atoi(arguments[2]),
                          std::move(secret));
  double seconds = load.run();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  double processor = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  std::printf("{\"seconds\": %.6f, \"load_cpu_seconds\": %.6f}\n", seconds, processor);
}

void serve(int world) {
  raise_descriptor_limit(static_cast<size_t>(world) + 64);
  StoreServerOptions options;
  options.world_size = world;
  options.token = random_bytes(32);
  options.torch_clients = TorchClients{};
  StoreServer server(listen_on(0, true), options);
  std::printf("%u %s\n", server.port(), to_hex(options.token).c_str());
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
}

}  // namespace

int main(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "serve" && argc == 3) return serve(std::atoi(argv[2])), 0;
    if (what == "torch" && argc == 5) return run_load<TorchConversation>(argv + 2, ""), 0;
    if (what == "dslaunch" && argc == 6) {
      return run_load<OurConversation>(argv + 2, fmt::format("{} {}", argv[3], argv[5])), 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_load: %s\n", error.what());
    return 1;
  }
  std::fprintf(stderr,
               "usage: store_load serve WORLD | torch PORT CLIENTS WINDOW | dslaunch PORT CLIENTS WINDOW TOKEN\n");
  return 64;
}
