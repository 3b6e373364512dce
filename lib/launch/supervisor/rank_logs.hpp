// The files that ranks' output goes to, complete and as it arrives: RUN_DIR/logs/HOST.RANK.log (or the job directory's
// logs), and those of --tee, --redirects and --enable_each_rank_log. All on the launching host, also for ranks on other
// hosts. One thread; the file thread writes.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/channel/message.hpp"
#include "launch/event_loop/file_thread.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {

class RankLogs {
 public:
  // Both outlive this.
  RankLogs(const LaunchPlan& plan, FileThread& thread) : plan_(plan), thread_(thread) {}

  // Creates directories and files. Throws UserError(73).
  void open();
  // A file that fails a write is not written again; the first failure is an error that the thread reports.
  void write(int rank, Stream stream, std::string_view bytes);
  // HOST.RANK.log exists.
  bool has_log(int rank) const { return has_log_[static_cast<size_t>(rank)]; }
  // Whether the stream goes to files only.
  bool redirected(int rank, Stream stream) const;
  // One line about a file that could not be created, once; empty otherwise.
  std::string take_error();

 private:
  struct File {
    std::string path;
    UniqueFd fd;
  };
  struct RankFiles {
    File both, each;  // HOST.RANK.log; --enable_each_rank_log
    File split[2];    // by stream: --tee, --redirects
  };
  // Owned by the file thread once there is something to write.
  struct Files {
    std::vector<RankFiles> ranks;
    bool error_reported = false;

    std::string write(int rank, Stream stream, std::string_view bytes);
    std::string write(File& file, std::string_view bytes);
  };
  void open_split_files();
  void open_each_rank_logs();
  File create_own(const std::string& path);
  File create(const std::string& path, bool append, const char* option) const;

  const LaunchPlan& plan_;
  FileThread& thread_;
  std::vector<int> local_ranks_;  // by rank
  std::vector<bool> has_log_;     // by rank
  std::shared_ptr<Files> files_ = std::make_shared<Files>();
  std::string error_;
};

}  // namespace dslaunch::launch
