#include "launch/agent/node_status.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launch/event_loop/poll_set.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

TEST_CASE("a rank uses its only device, or that of its local rank", "[launch][node_status]") {
  CHECK(device_of_rank("GPU-1", 3) == "GPU-1");
  CHECK(device_of_rank("0,1,2", 2) == "2");
  CHECK(device_of_rank("0,1", 2).empty());
  CHECK(device_of_rank("", 0).empty());
}

TEST_CASE("an agent answers with what its ranks tell and use", "[launch][node_status]") {
  const auto page = std::make_shared<const StatusPage>();
  const auto writer = StatusWriter::open(UniqueFd(::fcntl(page->fd(), F_DUPFD_CLOEXEC, 3)));
  REQUIRE(writer);
  writer->set_step({.step = 12, .total_steps = 40, .step_ms = 1.25, .busy_ms = -1, .device_bytes = 77});
  writer->set_report("report");
  NodeStatusReader reader;
  CHECK(reader.fd() == -1);
  CHECK_FALSE(reader.take());
  // This process is one of the ranks; the other has ended.
  reader.request({.request = 5, .with_gpus = true}, {{.rank = 3, .pid = ::getpid(), .page = page, .device = "GPU-none"},
                                                     {.rank = 4, .pid = 0x3fffffff, .page = nullptr, .device = ""}});
  std::optional<NodeStatus> status;
  for (const Deadline end = Deadline::after(20s); !status && !end.passed();) {
    PollSet polls;
    polls.add(reader.fd(), POLLIN);
    polls.wait(end);
    status = reader.take();
  }
  REQUIRE(status);
  CHECK(status->request == 5);
  CHECK(status->num_cores > 0);
  CHECK(status->available_bytes > 0);
  CHECK(status->memory_bytes >= status->available_bytes);
  REQUIRE(status->ranks.size() == 1);
  const RankSample& rank = status->ranks[0];
  CHECK(rank.rank == 3);
  CHECK((rank.process_state == 'R' || rank.process_state == 'S'));
  CHECK(rank.step == 12);
  CHECK(rank.total_steps == 40);
  CHECK(rank.step_us == 1250);
  CHECK(rank.busy_us == -1);
  CHECK(rank.device_bytes == 77);
  CHECK(rank.hang_report == "report");
  CHECK(rank.resident_bytes > 1 << 20);
  CHECK(rank.gpu_percent == -1);
  CHECK_FALSE(reader.take());  // each answer once
}
