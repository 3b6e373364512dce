// One rank of the grid's pool: takes case after case, runs each as `dsworker train` would (runtime::train with a config
// text), and agrees with the other ranks on how it ended. One thread.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/groups.hpp"
#include "rendezvous/launch_env.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::test {

class GridRank {
 public:
  // Joins the pool. `env` names rank, world size, port and token of the store that the pool's parent serves.
  explicit GridRank(rendezvous::LaunchEnv env);

  // Rank 0 reads a JSON line a case from `in_fd`, for example
  //   {"model": "m.pt", "run_dir": "d", "config": {…}, "steps": 20, "resume": ""}
  // and, where a case needs them, "verify": N, "eval_only": true, "job" and "begin_from" of a restart, and "shows":
  // true (what a run prints goes to standard error). It writes a line a case to `out_fd`:
  //   {"code": 0, "message": "", "seconds": 0.2, "pool": "ready"}
  // A case that failed in the same way on all ranks leaves the pool "ready"; one whose ranks disagree leaves it
  // "broken". Returns the rank's exit status: 0 after the end of the input, 1 for a broken pool.
  int run(int in_fd, int out_fd);

 private:
  struct Ending {
    int code = 0;
    std::string message;
  };
  std::string share_case(const std::string& line);
  Ending run_case(const std::string& text);
  bool agree(const Ending& own, Ending& first_failure);
  std::string key(const std::string& name) const;
  comm::Groups groups_of(int num_stages, int num_tensor);

  const rendezvous::LaunchEnv env_;
  std::unique_ptr<rendezvous::Store> store_;
  std::unique_ptr<comm::Communicator> world_;
  // By their number of stages and of tensor ranks; each is made for the first case that has it.
  std::map<std::pair<int, int>, comm::OwnedGroups> meshes_;
  int64_t case_number_ = 0;
};

}  // namespace dslaunch::test
