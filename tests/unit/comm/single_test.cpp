#include "unit/comm/communicator_contract.hpp"

using namespace dslaunch;

TEST_CASE("a group of one keeps the contract", "[comm][single]") {
  auto store = rendezvous::connect_store({}, Deadline::never());
  auto communicator = comm::make_communicator({}, *store);
  test::HostMemory memory;
  CHECK(communicator->size() == 1);
  CHECK(test::check_contract(*communicator, memory).empty());
}

TEST_CASE("a group of one obeys abort()", "[comm][single]") {
  auto store = rendezvous::connect_store({}, Deadline::never());
  auto communicator = comm::make_communicator({}, *store);
  communicator->abort("stop");
  float value = 1;
  CHECK_THROWS_AS(communicator->all_reduce({&value, 1, comm::DType::kFloat32}, comm::ReduceOp::kSum), PeerError);
  CHECK_THROWS_AS(communicator->barrier(), PeerError);
}

TEST_CASE("arguments that do not fit are our bug, named", "[comm][single]") {
  auto store = rendezvous::connect_store({}, Deadline::never());
  auto communicator = comm::make_communicator({}, *store);
  float values[4] = {};
  auto f32 = comm::DType::kFloat32;
  CHECK_THROWS_AS(communicator->all_gather(comm::Buffer{values, 2, f32}, {values, 4, f32}), InternalError);
  CHECK_THROWS_AS(communicator->reduce_scatter(comm::Buffer{values, 4, f32}, {values, 2, f32}, comm::ReduceOp::kSum),
                  InternalError);
  CHECK_THROWS_AS(communicator->all_to_all(comm::Buffer{values, 2, f32}, {values, 4, f32}), InternalError);
  CHECK_THROWS_AS(communicator->broadcast({values, 4, f32}, 1), InternalError);
  CHECK_THROWS_AS(communicator->send(comm::Buffer{values, 4, f32}, 0), InternalError);
  CHECK_THROWS_AS(communicator->all_reduce({nullptr, 4, f32}, comm::ReduceOp::kSum), InternalError);
  comm::CommunicatorOptions outside;
  outside.rank = 1;
  CHECK_THROWS_AS(comm::make_communicator(outside, *store), InternalError);
}
