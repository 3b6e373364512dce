// A rank of a job that somebody else started: joins, meets the others, exchanges a value, leaves. Exit status 0 when
// all of that worked; prints one line.
#include <cstdio>

#include "base/error.hpp"
#include "rendezvous/store.hpp"

int main() {
  using namespace dslaunch;
  try {
    auto deadline = Deadline::after(std::chrono::seconds(60));
    auto env = rendezvous::launch_env_from_environment();
    auto store = rendezvous::connect_store(env, deadline);
    store->set("from/" + std::to_string(env.rank), std::to_string(env.rank * 11), deadline);
    store->barrier("all", env.world_size, deadline);
    int next = (env.rank + 1) % env.world_size;
    auto got = store->get("from/" + std::to_string(next), deadline);
    std::printf("rank %d of %d got %s\n", env.rank, env.world_size, got.c_str());
    store->leave();
    return got == std::to_string(next * 11) ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return to_int(error.code());
  }
}
