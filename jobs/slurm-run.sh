#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The body of the Slurm job scripts, called by them: starts llmtrain on all tasks of the job, passes SIGUSR1 on to it
# (Slurm's warning that the time limit is near), and puts the job back into the queue when llmtrain returns 75: stopped on
# request, checkpoint written.
#   slurm-run.sh DECK [block.key=value ...]
# LAUNCHER: srun (the default; Slurm with its PMIx plugin, as `srun --mpi=list` tells) or mpirun (an Open MPI that knows Slurm).
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

if ((code == 75)); then
  echo "slurm-run: job $SLURM_JOB_ID stopped with a checkpoint written; it goes back into the queue"
  scontrol requeue "$SLURM_JOB_ID" # ends this script, sooner or later
fi
exit "$code"
