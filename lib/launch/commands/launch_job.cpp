#include "launch/commands/launch_job.hpp"

#include <unistd.h>

#include <csignal>

#include "base/described_error.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/jobs/register_job.hpp"
#include "launch/plan/job_command.hpp"
#include "launch/plan/plan_job.hpp"
#include "launch/process/programs.hpp"
#include "launch/supervisor/launch_context.hpp"
#include "launch/supervisor/node_join.hpp"
#include "launch/supervisor/restart_loop.hpp"

namespace dslaunch::launch {
namespace {

// The source is named before it is read.
HostList read_hosts(const LaunchOptions& options) {
  hostfile::Source source = find_source(options);
  if (!source.notice.empty()) log::info("{}", source.notice);
  HostList list = list_hosts(options, std::move(source));
  if (options.detach && list.membership && list.membership->num_nodes > 1) {
    throw UserError(ExitCode::kUsage,
                    "--detach cannot be used with --no_ssh: what started this command on every node supervises it");
  }
  return list;
}

// On a node that the user started, other than node rank 0: its part of the job.
int serve(const HostList& list, const LaunchOptions& options, const JobCommand& command) {
  AgentHello offer = offer_of_this_node(options, list);
  offer.command = command.text;
  offer.command_hash = command.hash;
  return serve_as_node(*list.membership, offer, options);
}

LaunchPlan first_plan(JobPlanner& planner, const LaunchContext& context) {
  LaunchPlan plan = planner.plan(context.hosts, 0);
  for (const auto& file : plan.env_files) log::info("reading variables for every rank from {}", file);
  for (const auto& warning : plan.warnings) log::warning("{}", warning);
  return plan;
}

struct Begun {
  LaunchPlan plan;
  std::unique_ptr<LiveJob> live;
};

Begun begin(JobPlanner& planner, LaunchContext& context, UniqueFd& starter) {
  context.gather(Deadline::never());
  check_same_command(planner.command(), context.gathered.hellos);
  LaunchPlan plan = first_plan(planner, context);
  planner.prepare(plan);
  std::unique_ptr<LiveJob> live = register_job(plan, context.options, starter);
  return {std::move(plan), std::move(live)};
}

// Externally started nodes receive the reason why the job does not start.
Begun begin_or_dismiss(JobPlanner& planner, LaunchContext& context, UniqueFd& starter) {
  try {
    return begin(planner, context, starter);
  } catch (const std::exception& error) {
    dismiss_nodes(context.gathered.links, failure_message(described(error)));
    throw;
  }
}

// The job is on record: from here on every end is recorded.
int run_attempts(LaunchPlan plan, LaunchContext& context, JobPlanner& planner, LiveJob& live) {
  SignalInbox signals{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  const int exit_code = RestartLoop(std::move(plan), context, planner, live, signals).run();
  signals.ignore_from_now_on();
  // Closing stalled files, or removing the run directory's lock beside them, would block as well.
  if (live.has_stalled_files()) ::_exit(exit_code);
  return exit_code;
}

// In the process that supervises the job. `starter`: the process that waits for its start, see detach().
int supervise(const LaunchOptions& options, JobPlanner& planner, UniqueFd& starter) {
  const HostList list = read_hosts(options);
  const bool is_other_node = list.membership && list.membership->node_rank > 0;
  if (is_other_node && !options.dry_run) return serve(list, options, planner.command());
  LaunchContext context{.options = options,
                        .membership = list.membership,
                        .hosts = resolve_hosts(options, list, planner.device_user()),
                        .gathered = {}};
  if (options.dry_run) return print_plan(first_plan(planner, context), options);
  auto [plan, live] = begin_or_dismiss(planner, context, starter);
  return run_attempts(std::move(plan), context, planner, *live);
}

}  // namespace

void set_log_level(const LaunchOptions& options) {
  if (options.quiet) log::set_level(log::Level::kError);
  if (options.verbose) log::set_level(log::Level::kDebug);
}

int launch_job(const LaunchOptions& options, JobPlanner& planner) {
  own_program();  // fixes the path, even if the program is replaced while the job waits or runs
  UniqueFd nobody;
  if (!options.detach || options.dry_run) return supervise(options, planner, nobody);
  // Before the first thread (of a name lookup, of a link): threads would not exist in the supervisor.
  DetachedSide side = detach();
  if (!side.is_supervisor) return print_start(side.started, options);
  try {
    return supervise(options, planner, side.starter);
  } catch (const std::exception& error) {
    const DescribedError end = described(error);
    log::write(log::Level::kError, end.text);
    if (side.starter.valid()) report_start(side.starter, to_int(end.code), "");
    return to_int(end.code);
  }
}

}  // namespace dslaunch::launch
