#include "rendezvous/tcp_store.hpp"

#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <future>

#include "base/error.hpp"
#include "unit/rendezvous/store_world.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;
using wire::Status;
using wire::Type;

namespace {

// The other end of a store's connection, past the handshake: answers when it is told to.
class SlowServer {
 public:
  SlowServer() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    client_.reset(ends[0]);
    own_.reset(ends[1]);
  }

  std::unique_ptr<TcpStore> client() { return std::make_unique<TcpStore>(std::move(client_), StoreAddress{}, nullptr); }

  wire::Frame next_request() {
    std::string length, rest;
    REQUIRE(receive_exactly(own_.get(), length, wire::kLengthBytes, soon()) == IoOutcome::kDone);
    REQUIRE(receive_exactly(own_.get(), rest, wire::decode_length(length), soon()) == IoOutcome::kDone);
    return wire::decode(rest);
  }
  void answer(const wire::Frame& request, Status status) {
    auto body = wire::Writer().u8(static_cast<uint8_t>(status)).take();
    auto bytes = wire::encode(wire::Frame{Type::kReply, request.request, body});
    REQUIRE(send_all(own_.get(), bytes, soon()) == IoOutcome::kDone);
  }
  // Once the client is gone.
  bool heard_all() {
    std::string byte;
    return receive_exactly(own_.get(), byte, 1, soon()) == IoOutcome::kClosed;
  }

 private:
  UniqueFd client_, own_;
};

}  // namespace

TEST_CASE("a client that timed out can join the same barrier round again", "[rendezvous][tcp_store]") {
  SlowServer server;
  auto store = server.client();
  const auto meet = [&](const char* name, Deadline deadline) {
    return std::async(std::launch::async, [&store, name, deadline] { store->barrier(name, 2, deadline); });
  };
  auto early = meet("the others came", in_ms(0)), earlier = meet("the others did not come yet", in_ms(0));
  CHECK_THROWS_AS(early.get(), TimeoutError);
  CHECK_THROWS_AS(earlier.get(), TimeoutError);

  auto again = meet("the others came", soon()), anew = meet("the others did not come yet", soon());
  for (int i = 0; i < 2; ++i) {
    const auto request = server.next_request();
    const bool is_complete = wire::Reader(request.body).text(wire::kMaxKeyBytes) == "the others came";
    server.answer(request, is_complete ? Status::kOk : Status::kTimeout);
  }
  server.answer(server.next_request(), Status::kOk);
  CHECK_NOTHROW(again.get());
  CHECK_NOTHROW(anew.get());
  store.reset();
  CHECK(server.heard_all());
}

TEST_CASE("a wait of days is one request", "[rendezvous][tcp_store]") {
  SlowServer server;
  auto store = server.client();
  auto asking =
      std::async(std::launch::async, [&] { store->barrier("b", 2, Deadline::after(std::chrono::hours(72))); });
  const auto request = server.next_request();
  wire::Reader fields(request.body);
  fields.text(wire::kMaxKeyBytes);
  fields.u32();
  CHECK(fields.u64() > 71 * 3600 * 1000);
  server.answer(request, Status::kOk);
  CHECK_NOTHROW(asking.get());
}
