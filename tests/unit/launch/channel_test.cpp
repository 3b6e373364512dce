#include "launch/channel/channel.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <memory>

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

struct Pair {
  Pair() {
    int there[2], back[2];
    REQUIRE(::pipe2(there, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(back, O_CLOEXEC) == 0);
    agent = std::make_unique<ChannelToLauncher>(UniqueFd(back[0]), UniqueFd(there[1]));
    launcher = std::make_unique<ChannelToAgent>(UniqueFd(there[0]), UniqueFd(back[1]));
  }
  std::unique_ptr<ChannelToLauncher> agent;
  std::unique_ptr<ChannelToAgent> launcher;
};

}  // namespace

TEST_CASE("more than a pipe holds is kept and arrives in order", "[launch][channel]") {
  Pair pair;
  const int count = 200;
  std::string bulk(10000, 'x');
  for (int i = 0; i < count; ++i) pair.agent->send(RankOutput{i, Stream::kOut, bulk});
  CHECK(pair.agent->num_unsent() > 0);
  int next = 0;
  while (next < count) {
    pair.agent->flush();
    REQUIRE(pair.launcher->receive());
    while (auto message = pair.launcher->next()) {
      auto& output = std::get<RankOutput>(*message);
      REQUIRE((output.rank == next && output.bytes == bulk));
      ++next;
    }
  }
  CHECK(pair.agent->num_unsent() == 0);
}

TEST_CASE("messages before the other side's end are still delivered", "[launch][channel]") {
  Pair pair;
  pair.agent->send(AgentDone{7});
  pair.agent.reset();
  CHECK_FALSE(pair.launcher->receive());
  auto message = pair.launcher->next();
  REQUIRE(message.has_value());
  CHECK(std::get<AgentDone>(*message).num_leftovers == 7);
}

TEST_CASE("sending to a closed peer does not fail", "[launch][channel]") {
  ::signal(SIGPIPE, SIG_IGN);
  Pair pair;
  pair.launcher.reset();
  pair.agent->send(AgentDone{});
  CHECK_FALSE(pair.agent->flush());
  CHECK(pair.agent->num_unsent() == 0);
}
