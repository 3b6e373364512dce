// The files that ranks' output goes to, whole and as it comes: RUN_DIR/logs/HOST.RANK.log (or the job folder's logs),
// and those of --tee, --redirects and --enable_each_rank_log. All on the launching host, also for ranks elsewhere. One
// thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/launch_plan.hpp"
#include "launch/message.hpp"

namespace dslaunch::launch {

class RankLogs {
 public:
  explicit RankLogs(const LaunchPlan& plan) : plan_(plan) {}

  // Makes folders and files. Throws UserError(73).
  void open();
  void write(int rank, Stream stream, std::string_view bytes);
  // Does the stream go to files only?
  bool redirected(int rank, Stream stream) const;
  // One line about a file that could not be written to, once; empty otherwise.
  std::string take_trouble();

 private:
  struct File {
    std::string path;
    UniqueFd fd;
  };
  struct RankFiles {
    int local_rank = 0;
    File both, each;  // HOST.RANK.log; --enable_each_rank_log
    File split[2];    // by stream: --tee, --redirects
  };
  void open_split_files();
  void open_each_rank_logs();
  File create_own(const std::string& path);
  File create(const std::string& path, bool append, const char* option) const;
  void write(File& file, std::string_view bytes);

  const LaunchPlan& plan_;
  std::vector<RankFiles> ranks_;
  std::string trouble_;
  bool trouble_told_ = false;
};

}  // namespace dslaunch::launch
