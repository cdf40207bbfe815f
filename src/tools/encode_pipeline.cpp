// SPDX-License-Identifier: Apache-2.0
/// Threads around the encoding of blocks. Signals stay with the main thread.
#include "llmtrain/tools/encode_pipeline.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

std::vector<std::string> keys_to_read(const EncodeSettings& settings) {
  std::vector<std::string> keys = settings.keys;
  if (!settings.prompt_key.empty()) keys.push_back(settings.prompt_key);
  return keys;
}

EncodedBlock encode_block(const LineBlock& block, KeyReader& reader, const EncodeSettings& settings) {
  EncodedBlock encoded;
  encoded.keys.resize(settings.keys.size());
  encoded.line_bytes = static_cast<std::int64_t>(block.size);
  encoded.consumed = block.consumed;
  const auto encode = [&](std::string_view text, std::vector<std::int32_t>& tokens) {
    settings.plain_text ? settings.tokenizer->encode_plain(text, tokens) : settings.tokenizer->encode(text, tokens);
  };
  const bool has_prompts = !settings.prompt_key.empty();
  std::vector<std::int32_t> prompt;
  std::int64_t lines = 0;
  std::size_t begin = 0;
  for (std::size_t end; begin < block.size; begin = end + 1, ++lines) {
    end = std::min(block.text().find('\n', begin), block.size);
    const std::string_view line = block.text().substr(begin, end - begin);
    const auto cap = static_cast<std::size_t>(settings.max_line_bytes);
    require(line.size() <= cap, ExitCode::bad_input, "{}",
            line.size() <= cap ? "" : too_long(block, lines, static_cast<std::int64_t>(begin), cap));
    if (is_blank(line)) continue;
    KeyReader::Outcome outcome;
    try {
      outcome = reader.read(line);
    } catch (const LineFault& fault) {
      fail(ExitCode::bad_input, "{}:{}: byte {}: {}", block.path, line_number(block, lines),
           block.offset + static_cast<std::int64_t>(begin + fault.at), fault.reason);
    }
    encoded.replaced += outcome == KeyReader::Outcome::replaced ? 1 : 0;
    encoded.skipped += outcome == KeyReader::Outcome::skipped ? 1 : 0;
    if (outcome == KeyReader::Outcome::skipped) continue;
    const std::string_view prompt_text = has_prompts ? reader.text(settings.keys.size()) : std::string_view();
    prompt.clear();
    encode(prompt_text, prompt);
    for (std::size_t i = 0; i < settings.keys.size(); ++i) {
      EncodedKey& key = encoded.keys[i];
      const std::string_view text = reader.text(i);
      const std::size_t before = key.tokens.size();
      key.tokens.insert(key.tokens.end(), prompt.begin(), prompt.end());
      encode(text, key.tokens);
      if (key.tokens.size() > before && settings.eod >= 0) key.tokens.push_back(settings.eod);
      key.lengths.push_back(static_cast<std::int64_t>(key.tokens.size() - before));
      if (has_prompts) key.prompts.push_back(static_cast<std::int32_t>(prompt.size()));
      key.text_bytes += static_cast<std::int64_t>(prompt_text.size() + text.size());
      key.repeated += reader.repeated(i) ? 1 : 0;
    }
  }
  return encoded;
}

EncodePipeline::EncodePipeline(std::vector<InputPart> parts, const EncodeSettings& settings, int workers)
    : settings_(settings),
      reader_(std::move(parts), settings.max_line_bytes, stop_),
      most_bytes_((2 * static_cast<std::size_t>(workers) + 1) * BlockReader::block_bytes) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the threads
  threads_.emplace_back([this] { read(); });
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

EncodePipeline::~EncodePipeline() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void EncodePipeline::read() {
  for (bool more = true; more;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || bytes_ < most_bytes_; });
      if (stop_) return;
    }
    auto job = std::make_shared<Job>();
    try {
      std::optional<LineBlock> block = reader_.next();
      more = block.has_value();
      if (more) job->lines = *std::move(block);
    } catch (...) {  // in its place in the order
      job->error = std::current_exception();
      job->done = true;
      more = false;
    }
    {
      const std::lock_guard lock(mutex_);
      if (more || job->done) in_order_.push_back(job);
      if (more) to_encode_.push_back(job);
      bytes_ += job->lines.size;
      all_read_ = !more;
    }
    changed_.notify_all();
  }
}

void EncodePipeline::work() {
  KeyReader reader(keys_to_read(settings_), settings_.bad_text);
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || all_read_ || !to_encode_.empty(); });
      if (stop_ || to_encode_.empty()) return;
      job = std::move(to_encode_.front());
      to_encode_.pop_front();
    }
    try {
      job->encoded = encode_block(job->lines, reader, settings_);
    } catch (...) {
      job->error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      job->done = true;
    }
    changed_.notify_all();
  }
}

EncodePipeline::Status EncodePipeline::take(EncodedBlock& block, std::chrono::milliseconds patience) {
  std::shared_ptr<Job> job;
  {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return in_order_.empty() ? all_read_ : in_order_.front()->done; };
    if (!changed_.wait_for(lock, patience, ready)) return Status::none_yet;
    if (in_order_.empty()) return Status::end;
    job = std::move(in_order_.front());
    in_order_.pop_front();
    bytes_ -= job->lines.size;
  }
  changed_.notify_all();
  if (job->error) std::rethrow_exception(job->error);
  block = std::move(job->encoded);
  return Status::block;
}

}  // namespace llmtrain
