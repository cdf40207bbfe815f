// SPDX-License-Identifier: Apache-2.0
/// Taken by exclusive creation, kept by rewriting in place, taken over by renaming. No clock of another machine is used:
/// whoever waits measures how long the file stays the same.
#include "llmtrain/driver/run_lock.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/base/host.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* lock_name = "lock";
constexpr std::int64_t max_lock = 4096;  // bytes

std::string job_of_scheduler() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      return std::string(name) + "=" + value;
    }
  }
  return "-";
}

constexpr std::pair<const char*, std::string LockHolder::*> fields[] = {
    {"host", &LockHolder::host},       {"boot", &LockHolder::boot},   {"space", &LockHolder::space},
    {"process", &LockHolder::process}, {"start", &LockHolder::start}, {"job", &LockHolder::job},
    {"token", &LockHolder::token}};

/// One field a line, and the number of heartbeats in a fixed width: the file is rewritten in place.
std::string text_of(const LockHolder& holder, std::int64_t beats) {
  std::string text;
  for (const auto& [name, member] : fields) text += fmt::format("{} {}\n", name, holder.*member);
  return text + fmt::format("beats {:012}\n", beats);
}

/// What is missing stays empty.
LockHolder parse(const std::string& text) {
  LockHolder holder;
  std::map<std::string, std::string> found = fields_of(text);
  for (const auto& [name, member] : fields) holder.*member = found[name];
  return holder;
}

std::string name_of(const LockHolder& holder) {
  if (holder.process.empty()) return "somebody unknown";
  return fmt::format("process {} on {}{}", holder.process, holder.host,
                     holder.job == "-" || holder.job.empty() ? "" : " (" + holder.job + ")");
}

bool is_here(const LockHolder& holder, const LockHolder& self) {
  return holder.host == self.host && holder.boot == self.boot && holder.space == self.space;
}

/// Of a process of this machine.
bool is_gone(const LockHolder& holder) {
  const auto number = std::atoll(holder.process.c_str());
  if (number <= 0) return false;
  if (::kill(static_cast<pid_t>(number), 0) != 0 && errno == ESRCH) return true;
  const auto [state, start] = process_state(number);
  return state == "Z" || state == "X" || (!start.empty() && start != holder.start);
}

/// Why the lock may be taken over at once; "" if it may not.
std::string reason_to_take(const LockHolder& holder, const LockHolder& self) {
  if (is_here(holder, self)) return is_gone(holder) ? "which is gone" : "";
  return holder.job != "-" && !holder.job.empty() && holder.job == self.job ? "an earlier start of this job" : "";
}

}  // namespace

LockHolder LockHolder::self() {
  std::error_code ignored;
  LockHolder holder;
  holder.host = host_name();
  holder.boot = system_line("/proc/sys/kernel/random/boot_id");
  holder.space = fs::read_symlink("/proc/self/ns/pid", ignored).string();
  holder.process = std::to_string(::getpid());
  holder.start = process_state(::getpid()).start;
  holder.job = job_of_scheduler();
  std::random_device device;
  holder.token = fmt::format("{:08x}{:08x}", device(), device());
  return holder;
}

struct RunLock::Impl {
  std::string folder;
  std::string path;
  LockTimes times;
  LockHolder self;
  std::string note;
  std::atomic<bool> lost = false;
  std::mutex mutex;
  std::condition_variable_any wake;
  std::jthread heart;  // the last member: it uses the others

  /// The lock as it stands; "" if there is none, or nothing in it that can be read.
  std::string read() const { return try_read_small_file(path, max_lock); }

  bool create() const {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file) {
      if (errno == EEXIST) return false;
      fail(ExitCode::cannot_create, "cannot create {}: {}; choose another folder or check its permissions", path,
           errno_text(errno));
    }
    const int error = write_all(file.get(), text_of(self, 0));
    if (error == 0) return true;
    ::unlink(path.c_str());
    fail(ExitCode::cannot_create, "cannot write {}: {}; make room or choose another folder", path, errno_text(error));
  }

  /// Removes the lock that holds `text`; whoever else takes it at the same moment keeps it.
  void remove(const std::string& text) const {
    const std::string aside = path + "." + self.token;
    if (::rename(path.c_str(), aside.c_str()) != 0) return;  // somebody was faster
    bool same = false;
    try {
      same = read_small_file(aside, max_lock) == text;
    } catch (const Error&) {
      same = text.empty();
    }
    if (!same) static_cast<void>(::link(aside.c_str(), path.c_str()));
    ::unlink(aside.c_str());
  }

  void take(const Say& say) {
    std::string watched;
    Clock::time_point since;
    bool watching = false;
    while (!create()) {
      const std::string text = read();
      const LockHolder holder = parse(text);
      const bool is_stale = watching && text == watched && Clock::now() - since >= times.stale;
      const std::string reason = is_stale ? fmt::format("without a heartbeat for {} s", times.stale.count() / 1000.0)
                                          : reason_to_take(holder, self);
      if (!reason.empty()) {
        remove(text);
        watching = false;
        note = fmt::format("the lock of {} is taken over from {}, {}", folder, name_of(holder), reason);
        continue;
      }
      if (!watching) {
        watching = true;
        watched = text;
        since = Clock::now();
        if (!is_here(holder, self)) {
          say(fmt::format("{} is locked by {}: waiting up to {} s for its heartbeat", folder, name_of(holder),
                          times.stale.count() / 1000.0));
        }
      }
      // A file that is gone, or still empty, is no heartbeat.
      require(text == watched || text.empty() || watched.empty(), ExitCode::cannot_create,
              "{} is in use by {}, another run that is alive; wait for its end, or choose another run.dir", folder,
              name_of(holder));
      if (watched.empty() && !text.empty()) watching = false;
      std::this_thread::sleep_for(times.poll);
    }
  }

  void beat(std::stop_token stop) {
    std::int64_t beats = 0;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, stop, times.beat, [&] { return stop.stop_requested(); })) {
      const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
      if (parse(read()).token != self.token) {
        lost = true;
        return;
      }
      // A heartbeat that cannot be written now is tried again.
      if (file) static_cast<void>(write_all(file.get(), text_of(self, ++beats)));
    }
  }
};

RunLock::RunLock(const std::string& folder, const Say& say, LockTimes times, LockHolder self)
    : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  impl_->path = folder + "/" + lock_name;
  impl_->times = times;
  impl_->self = std::move(self);
  impl_->take(say);
  impl_->heart = std::jthread([impl = impl_.get()](std::stop_token stop) { impl->beat(std::move(stop)); });
}

RunLock::~RunLock() {
  impl_->heart.request_stop();
  impl_->heart.join();
  if (parse(impl_->read()).token == impl_->self.token) ::unlink(impl_->path.c_str());
}

const std::string& RunLock::folder() const { return impl_->folder; }

const std::string& RunLock::note() const { return impl_->note; }

bool RunLock::is_lost() const { return impl_->lost; }

}  // namespace llmtrain
