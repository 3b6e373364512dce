#include "rendezvous/wire.hpp"

#include <catch2/catch.hpp>

#include "base/bytes.hpp"

namespace wire = dslaunch::rendezvous::wire;

namespace {

std::string hex(const std::string& bytes) {
  return dslaunch::to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace

// The bytes are those of the examples in docs/wire.md.
TEST_CASE("a set frame has the documented bytes", "[rendezvous][wire]") {
  auto frame = wire::encode(wire::Frame{wire::Type::kSet, 7, wire::Writer().text("k").text("abc").take()});
  CHECK(hex(frame) ==
        "11000000"
        "01"
        "07000000"
        "01000000"
        "6b"
        "03000000"
        "616263");
}

TEST_CASE("the first byte distinguishes the two protocols", "[rendezvous][wire]") {
  auto hello = wire::encode(wire::Hello{});
  REQUIRE(hello.size() == wire::kHelloBytes);
  CHECK(hello[0] == 'D');
  CHECK(hello[0] != 0);
}

TEST_CASE("the handshake's blocks survive encoding and decoding", "[rendezvous][wire]") {
  wire::ClientProof claim{{}, 3, 8, "node-a"};
  claim.proof.fill(9);
  auto block = wire::encode(claim);
  REQUIRE(block.size() == wire::kClientProofBytes);
  auto back = wire::decode_client_proof(block);
  CHECK(back.rank == 3);
  CHECK(back.world_size == 8);
  CHECK(back.host == "node-a");
  CHECK(back.proof == claim.proof);
  CHECK(wire::proven_part(block).size() == block.size() - wire::kProofBytes);

  wire::ServerProof verdict{wire::Admission::kWrongWorld, {}, 5};
  CHECK(wire::decode_server_proof(wire::encode(verdict)).admission == wire::Admission::kWrongWorld);
  CHECK(wire::decode_server_proof(wire::encode(verdict)).world_size == 5);
}

TEST_CASE("a host's name longer than its field is cut", "[rendezvous][wire]") {
  auto block = wire::encode(wire::ClientProof{{}, 0, 1, std::string(400, 'h')});
  REQUIRE(block.size() == wire::kClientProofBytes);
  CHECK(wire::decode_client_proof(block).host == std::string(255, 'h'));
}

TEST_CASE("frames out of range and broken fields are refused", "[rendezvous][wire]") {
  auto length = [](uint32_t value) { return wire::decode_length(wire::Writer().u32(value).take()); };
  CHECK(length(5) == 5);
  CHECK(length(wire::kMaxFrameBytes) == wire::kMaxFrameBytes);
  CHECK_THROWS_AS(length(4), wire::WireError);
  CHECK_THROWS_AS(length(wire::kMaxFrameBytes + 1), wire::WireError);
  CHECK_THROWS_AS(length(0xffffffff), wire::WireError);
  CHECK_THROWS_AS(wire::decode(std::string("\x20\0\0\0\0", 5)), wire::WireError);
  CHECK_THROWS_AS(wire::decode_hello("GET / HTTP/1.1\r\nHost: example and so on.."), wire::WireError);
}
