#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The body of the Slurm job scripts, called by them: starts llmtrain on all tasks of the job, passes SIGUSR1 on to it
# (Slurm's warning that the time limit is near), and puts the job back into the queue when llmtrain returns 75: stopped on
# request, checkpoint written; and while RESTARTS allows it when ranks hung (81) or were killed (137, which is also what srun
# makes of a hang: it returns the highest code, and kills the other ranks).
#   slurm-run.sh DECK [block.key=value ...]
# LAUNCHER: srun (the default; Slurm with its PMIx plugin, as `srun --mpi=list` tells) or mpirun (an Open MPI that knows Slurm).
# RESTARTS: how often the job may have been restarted, for whatever reason, for that to put it back; 0 unless set.
# LLMTRAIN_HOME: the folder of llmtrain and jobs/, if it is not the one that the job was submitted from.
set -uo pipefail

home=${LLMTRAIN_HOME:-$SLURM_SUBMIT_DIR}
cores=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cores}"

case ${LAUNCHER:=srun} in
  srun) launch=(srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$cores") ;; # not inherited since Slurm 22.05
  mpirun)
    launch=(mpirun --map-by "slot:PE=$cores")
    for name in OMP_NUM_THREADS "${!NCCL_@}"; do launch+=(-x "$name"); done
    ;;
  *)
    echo "slurm-run: LAUNCHER is '$LAUNCHER', but may be srun or mpirun" >&2
    exit 64
    ;;
esac

child=
interrupted=
trap 'interrupted=yes; [[ -z $child ]] || kill -USR1 "$child"' USR1

"${launch[@]}" "$home/llmtrain" "$@" &
child=$!
until
  interrupted=no
  wait "$child" # ends early by a signal; a second time it tells the same exit code
  code=$?
  [[ $interrupted == no ]]
do :; done

why=
((code != 75)) || why="stopped with a checkpoint written"
if ((code == 81 || code == 137)) && ((${SLURM_RESTART_COUNT:-0} < ${RESTARTS:-0})); then
  why="hung, or ranks of it were killed, and it may be restarted ($code)"
fi
if [[ -n $why ]]; then
  echo "slurm-run: job $SLURM_JOB_ID $why; it goes back into the queue"
  scontrol requeue "$SLURM_JOB_ID" # ends this script, sooner or later
fi
exit "$code"
