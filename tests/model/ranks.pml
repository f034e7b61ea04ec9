/* The protocol between ranks as a model that spin checks exhaustively: boards, counts, rows, doorbells, refusal,
 * abort, leaving and death. docs/RELIABILITY.md, section "Model of the protocol", says which function each part
 * stands for, and what is left out.
 *
 * N ranks, STEPS steps, FAULTS faults at most: a death, an early leave, a wait that takes too long, an allocation of
 * another size. Each statement that touches what ranks share is a step of its own, and a process may die between any
 * two of them, with all its threads. Parks have no time limit here: a ring that is lost is a deadlock.
 * What begins with `ghost` is not in the code; the properties are stated with it. MISTAKE_... plants a mistake that
 * the checker must find.
 */
#ifndef N
#define N 2
#endif
#ifndef STEPS
#define STEPS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif

/* COARSE, for what a third rank adds: a put and its signal are one step, an abort is another, and whoever waits is
   woken by what it waits for, without a doorbell; a death is told by nobody's thread in one step. */
#ifdef COARSE
#define ONE_IF_COARSE atomic
#else
#define ONE_IF_COARSE
#endif

#define LEFT 1  /* causes of an abort */
#define LATE 2
#define DIED 3
#define SIZES 4

#ifdef MISTAKE_REFUSED_ALONE
#define NUMBER number
#else
#define NUMBER step  /* each step is one gather */
#endif

/* Boards lie in two halves by parity, since a rank may be one gather ahead of another. */
#ifdef MISTAKE_ONE_HALF
#define BOARD(rank, source) at[rank].boards[source]
#else
#define BOARD(rank, source) at[rank].boards[(NUMBER & 1) * N + (source)]
#endif
#define NEXT(i) ((me + (i)) % N)
#define HAS(mask, rank) (((mask) >> (rank)) & 1)

typedef Board {
  byte number;      /* of the gather: posted last */
  byte step;        /* the block: the step that the rank speaks of */
  bit refused;
  byte countsStep;  /* the counts, in memory of the program: the step that they are of, */
  byte mask         /* and the ranks that it has rows for */
};

/* Symmetric memory of a rank: others write here. */
typedef Memory {
  Board boards[2 * N];
  byte rows[N];     /* the step whose rows of that source lie here */
  byte results[N];  /* the same of rows that come back */
  byte arrived;     /* event counters: they only grow in a step */
  byte returned
};
Memory at[N];

/* The control block. */
byte aborted;    /* rank + 1 whose message is that of all */
byte cause[N];   /* the message of each rank */
byte lost;       /* rank + 1 */
bit left[N];
byte allocated;  /* bytes of the allocation, by who came first */

/* Doorbells: `rung` is whether the epoch has changed since the rank read it. */
bit attending[N];
bit rung[N];

/* Each process has these. */
bit abortMutex[N];
bit stopWatcher[N];
bit watcherEnded[N];

byte faults;
byte ghostOpen[N];  /* the step for which the memory takes rows: from the rank's counts to its end of the step */
byte ghostOk[STEPS + 1], ghostRefused[STEPS + 1];  /* ranks with that outcome of a step */
byte ghostSteps;  /* that all ranks have run or refused */
byte ghostCause;  /* the first message */
bit ghostDead[N];
bit ghostEnded[N];
bit ghostDied, ghostLeft, ghostLate, ghostSizes;  /* what has happened */

/* A step that one rank refuses fails at all, and what all know of a step is forgotten: fewer states. */
#define OUTCOME(counter, other) \
  counter[step]++; assert(other[step] == 0); if :: counter[step] == N -> counter[step] = 0; ghostSteps++ :: else fi

/* Doorbell::ring(): its second half alone, later, only wakes once too often */
inline ring(rank) {
#ifdef COARSE
  skip
#else
  if :: attending[rank] -> rung[rank] = 1 :: else fi
#endif
}

inline ringAll() {
#ifdef COARSE
  skip
#else
  do
  :: atomic { i < N -> ring(i); i++ }
  :: atomic { i == N -> i = 0; break }
  od
#endif
}

/* Transport::abort() */
inline abort(why) {
#ifndef MISTAKE_MESSAGE_UNLOCKED
  atomic { !abortMutex[me] -> abortMutex[me] = 1 };
#endif
  if
  :: atomic { aborted -> abortMutex[me] = 0 }
  :: else ->
     cause[me] = why;
     atomic { if :: aborted == 0 -> aborted = me + 1; ghostCause = cause[me] :: else fi; abortMutex[me] = 0 };
     ringAll()
  fi
}

/* isAborted(), abortMessage() and lostRank() of who is told to stop; part of an atomic step */
inline readMessage() {
  failed = 1;
  assert(cause[aborted - 1] == ghostCause);       /* the first message, and it stays */
  assert(cause[aborted - 1] != DIED || lost != 0) /* a death is told together with who died */
}

inline readLeft() {
  gone = 0;
  do
  :: i < N -> if :: left[i] -> gone = gone | (1 << i) :: else fi; i++
  :: else -> i = 0; break
  od
}

/* `why` = LEFT where a rank that had left still owes what is waited for; part of an atomic step */
inline findDebtor(owes) {
  do
  :: i < N -> if :: HAS(gone, i) && owes -> why = LEFT :: else fi; i++
  :: else -> i = 0; break
  od
}

/* AllGather::awaitRank(), and the executors' wait for an event: until `there` holds; else `failed`, and the ranks
   are aborted. `owes`: rank i still owes what is waited for. Reads stand in one step where whatever comes between
   them rings, too, and is found the next time. */
#ifdef COARSE
inline await(there, owes, debtor) {
  if
  :: there
  :: !(there) && aborted -> readMessage()
  :: !(there) && !aborted && debtor -> abort(LEFT); failed = 1
  :: !(there) && !aborted && faults > 0 -> faults--; ghostLate = 1; abort(LATE); failed = 1
  fi
}
#else
inline await(there, owes, debtor) {
  if
  :: there
  :: else ->
     attending[me] = 1;
     do
     :: atomic {
#ifndef MISTAKE_EPOCH_READ_LATE
          rung[me] = 0;
#endif
#ifndef MISTAKE_LEFT_READ_LATE
          readLeft();
#endif
          skip
        };
        if :: there -> break :: else fi;
#ifdef MISTAKE_LEFT_READ_LATE
        atomic { readLeft() };
#endif
        atomic {
          if
          :: aborted -> readMessage(); break
          :: else -> findDebtor(owes)
          fi;
          if
          :: why == 0
          :: why == 0 && faults > 0 && !(there) -> faults--; ghostLate = 1; why = LATE
          :: why != 0
          fi
        };
        if :: why != 0 -> abort(why); failed = 1; break :: else fi;
#ifdef MISTAKE_EPOCH_READ_LATE
        rung[me] = 0;
#endif
        rung[me]  /* Doorbell::park() */
     od;
     atomic { attending[me] = 0; rung[me] = 0; gone = 0; why = 0 }
  fi
}
#endif

inline putBlock(peer) {
  BOARD(peer, me).step = step; BOARD(peer, me).refused = refuses
}

/* Exchange::put(): a rank that refuses a step has no counts */
inline putCounts(peer) {
  BOARD(peer, me).countsStep = step; BOARD(peer, me).mask = mask
}

inline putAllCounts() {
  ONE_IF_COARSE {
    do
    :: atomic { j < N && !refuses -> putCounts(NEXT(j)); j++ }
    :: atomic { j == N || refuses -> j = 1; break }
    od
  }
}

/* Transport::put() of a block, then Transport::post() of its number */
inline postBoard(peer) {
#ifdef MISTAKE_NUMBER_POSTED_FIRST
  BOARD(peer, me).number = NUMBER;
#endif
#ifdef MISTAKE_RING_BEFORE_STORE
  ring(peer);
#endif
  atomic { putBlock(peer) };
#ifndef MISTAKE_NUMBER_POSTED_FIRST
  BOARD(peer, me).number = NUMBER;
#endif
#ifndef MISTAKE_RING_BEFORE_STORE
  ring(peer)
#else
  skip
#endif
}

/* Meeting::hold() of one source; part of an atomic step */
inline readBoard(who) {
  assert(BOARD(me, who).step == step);  /* no rank reads a board of another step */
  if
#ifdef MISTAKE_REFUSAL_OF_FIRST_ONLY
  :: BOARD(me, who).refused && (who == 0 || who == me) -> anyRefused = 1
#else
  :: BOARD(me, who).refused -> anyRefused = 1
#endif
  :: else
  fi;
  BOARD(me, who).refused = 0  /* nobody reads it again: fewer states */
}

/* Exchange::take() of one source; part of an atomic step */
inline takeCounts(who) {
  assert(BOARD(me, who).countsStep == step);  /* nor counts of another */
  if :: who != me && HAS(BOARD(me, who).mask, me) -> senders = senders | (1 << who); expected++ :: else fi;
  BOARD(me, who).mask = 0; BOARD(me, who).countsStep = 0
}

/* Nobody reads them again: fewer states. */
inline forgetRows() {
  do
  :: j < N -> at[me].rows[j] = 0; at[me].results[j] = 0; j++
  :: else -> j = 0; break
  od
}

/* runTask() of a piece: put, then signal; before it the worker asks whether the step was aborted */
inline send(peer, place, counter) {
  atomic {
    if
    :: aborted -> readMessage()
    :: else ->
       assert(ghostOpen[peer] == step);  /* no write before the counts of the receiver permit it, none after */
       place = step
    fi
  };
  if
  :: failed
  :: else ->
     atomic { counter++; assert(counter < N) };
     ring(peer)
  fi
}

#define BOARD_THERE (BOARD(me, j).number == NUMBER)
#define BOARD_OWED (i == j)
#define ROWS_THERE (at[me].arrived >= expected)
#define ROWS_OWED (HAS(senders, i) && at[me].rows[i] != step)
#define RESULTS_THERE (at[me].returned >= sent)
#define RESULTS_OWED (HAS(mask, i) && at[me].results[i] != step)
/* The same of some rank that has left. */
#define OF_ANY(debtor) (debtor(0) || debtor(1) || debtor(N - 1))
#define BOARD_DEBTOR left[j]
#define ROWS_DEBT(who) (left[who] && HAS(senders, who) && at[me].rows[who] != step)
#define RESULTS_DEBT(who) (left[who] && HAS(mask, who) && at[me].results[who] != step)

#ifdef MISTAKE_CLEARED_LATE
#define CLEAR skip
#else
#define CLEAR at[me].arrived = 0; at[me].returned = 0
#endif

proctype Rank(byte me) provided (!ghostDead[me]) {
  byte step = 1, i, j, mask, expected, sent, senders, gone, size = 1, why;
  bit refuses, anyRefused, failed;
#ifdef MISTAKE_REFUSED_ALONE
  byte number;
#endif

  atomic {  /* SharedMemoryTransport::allocate(), and RankState::explain() where it failed */
    if
    :: skip
    :: faults > 0 -> faults--; ghostSizes = 1; size = 2
    fi;
    if :: allocated == 0 -> allocated = size :: else fi
  };
  ONE_IF_COARSE { if :: allocated != size -> abort(SIZES) :: else fi };

  do
  :: atomic { step > STEPS -> break }
  :: atomic {
       step <= STEPS ->
       if  /* Context::Impl::checkAborted() */
       :: aborted -> readMessage(); break
       :: else
       fi;
       /* RankState::bindStep(): what this rank says of the step. A rank that refuses it has no rows. */
       if
       :: faults > 0 -> faults--; ghostLeft = 1; break
       :: refuses = 1
       :: ghostOpen[me] = step
#if N == 2
       :: ghostOpen[me] = step; mask = 1 << NEXT(1); sent = 1
#else
       :: ghostOpen[me] = step; mask = (1 << NEXT(1)) | (1 << NEXT(2)); sent = 2
#endif
       fi;
#ifdef MISTAKE_REFUSED_ALONE
       if
       :: refuses -> OUTCOME(ghostRefused, ghostOk); goto next
       :: else -> number++
       fi;
#endif
       /* the own board: no other rank sees it */
       if :: refuses :: else -> putCounts(me) fi;
       putBlock(me); BOARD(me, me).number = NUMBER; j = 1
     };
#ifndef MISTAKE_COUNTS_PUT_LATE
     putAllCounts();
#endif

     do  /* AllGather::post() */
     :: ONE_IF_COARSE { j < N -> postBoard(NEXT(j)); j++ }
     :: atomic { j == N -> j = 0; break }
     od;
#ifdef MISTAKE_COUNTS_PUT_LATE
     j = 1; putAllCounts(); j = 0;
#endif
#ifdef MISTAKE_CLEARED_LATE
     at[me].arrived = 0; at[me].returned = 0;
#endif

     do  /* AllGather::await() */
#ifdef MISTAKE_COUNTS_NOT_AWAITED
     :: j < N && !failed -> if :: j == me -> await(BOARD_THERE, BOARD_OWED, BOARD_DEBTOR) :: else fi; j++
#else
     :: ONE_IF_COARSE { j < N && !failed -> await(BOARD_THERE, BOARD_OWED, BOARD_DEBTOR); j++ }
#endif
     :: atomic { !failed && j == N -> j = 0; break }
     :: atomic { failed -> goto leave }
     od;

     atomic {
       do
#ifdef MISTAKE_COUNTS_NOT_AWAITED
       :: j < N -> if :: BOARD_THERE && BOARD(me, j).step == step -> readBoard(j) :: else fi; j++
#else
       :: j < N -> readBoard(j); j++
#endif
       :: else -> j = 0; break
       od;
       if  /* the step fails at all ranks, and the next one runs */
       :: anyRefused ->
          OUTCOME(ghostRefused, ghostOk);
          ghostOpen[me] = 0;
          do  /* nobody takes them: fewer states */
          :: j < N -> BOARD(me, j).mask = 0; BOARD(me, j).countsStep = 0; j++
          :: else -> j = 0; break
          od;
          goto next
       :: else
       fi
     };
     atomic {
       do
#ifdef MISTAKE_COUNTS_NOT_AWAITED
       :: j < N -> if :: BOARD(me, j).countsStep == step -> takeCounts(j) :: else fi; j++
#else
       :: j < N -> takeCounts(j); j++
#endif
       :: else -> j = 0; break
       od
     };

     do  /* tasks: dispatch, a wait for rows, combine, a wait for results */
     :: atomic { j < N && !failed && !HAS(mask, NEXT(j)) -> j++ }
     :: ONE_IF_COARSE {
          j < N && !failed && HAS(mask, NEXT(j)) -> send(NEXT(j), at[NEXT(j)].rows[me], at[NEXT(j)].arrived);
          j++
        }
     :: atomic { j == N || failed -> j = 0; break }
     od;
     ONE_IF_COARSE { if :: !failed -> await(ROWS_THERE, ROWS_OWED, OF_ANY(ROWS_DEBT)) :: else fi };
     do
     :: atomic { j < N && !failed && !HAS(senders, NEXT(j)) -> j++ }
     :: ONE_IF_COARSE {
          j < N && !failed && HAS(senders, NEXT(j)) ->
          assert(at[me].rows[NEXT(j)] == step);  /* rows are there before the signal that covers them */
          send(NEXT(j), at[NEXT(j)].results[me], at[NEXT(j)].returned);
          j++
        }
     :: atomic { j == N || failed -> j = 0; break }
     od;
     ONE_IF_COARSE { if :: !failed -> await(RESULTS_THERE, RESULTS_OWED, OF_ANY(RESULTS_DEBT)) :: else fi };
     atomic {
#ifndef MISTAKE_ABORT_NOT_ASKED
       if  /* ParallelExecutor::runTasks() after its workers have ended */
       :: aborted -> readMessage(); goto leave
       :: else
       fi;
#endif
       /* EventTable::zero(), RankState::finishStep() */
       assert(at[me].arrived == expected && at[me].returned == sent);  /* who ends well has all its rows */
       OUTCOME(ghostOk, ghostRefused);
       ghostOpen[me] = 0;
       CLEAR;
       forgetRows()
     };
next:
     atomic { step++; refuses = 0; mask = 0; expected = 0; sent = 0; senders = 0; anyRefused = 0 }
  od;

leave:
  ONE_IF_COARSE {  /* ~SharedMemoryTransport() */
    atomic {
      left[me] = 1;
      step = 0; refuses = 0; mask = 0; expected = 0; sent = 0; senders = 0; anyRefused = 0; failed = 0; j = 0
    };
#ifndef MISTAKE_LEFT_SILENTLY
    ringAll();
#endif
#ifndef COARSE
    stopWatcher[me] = 1;
    watcherEnded[me];
#endif
    ghostEnded[me] = 1
  }
}

#ifndef COARSE
#define ENDED(who) (ghostDead[who] && !HAS(seen, who))

/* LifeWatcher::watch() and processEnded(): a thread of each rank. */
proctype Watcher(byte me) provided (!ghostDead[me]) {
  byte i, who, seen;
  do
  :: atomic { stopWatcher[me] -> break }
  :: atomic {
       if
       :: ENDED(0) -> who = 0
       :: ENDED(1) -> who = 1
#if N > 2
       :: ENDED(2) -> who = 2
#endif
       fi;
       seen = seen | (1 << who)
     };
     if
     :: left[who]
     :: else ->
#ifdef MISTAKE_LOST_SET_LATE
        abort(DIED);
        lost = who + 1
#else
        atomic { if :: lost == 0 -> lost = who + 1 :: else fi };
#ifndef MISTAKE_DEATH_NOT_TOLD
        abort(DIED)
#endif
#endif
     fi;
#ifndef MISTAKE_WATCHER_DOES_NOT_RING
     ring(me)  /* whoever aborted first may have died before it rang */
#endif
  od;
  atomic { watcherEnded[me] = 1; who = 0 }
}
#define WATCH(who) run Watcher(who)
#define TELL_DEATH(who) false
#else
#define WATCH(who) skip
#define TELL_DEATH(who) \
  ghostDead[who] && !left[who] && !lost -> lost = who + 1; \
  if :: !aborted -> aborted = (who + 1) % N + 1; cause[aborted - 1] = DIED; ghostCause = DIED :: else fi
#endif

#define OVER(who) (ghostEnded[who] || ghostDead[who])
#define MAY_DIE(who) faults > 0 && !ghostDead[who] && !ghostEnded[who] -> faults--; ghostDied = 1; ghostDead[who] = 1

/* Starts the ranks, lets one die, waits for the end of all and looks at how they ended. */
init {
  byte who;
  atomic {
    if :: faults = 0 :: faults = FAULTS fi;
    do
    :: who < N -> run Rank(who); WATCH(who); who++
    :: else -> break
    od
  };
  do
  :: atomic { MAY_DIE(0) }
  :: atomic { TELL_DEATH(0) }
  :: atomic { MAY_DIE(1) }
  :: atomic { TELL_DEATH(1) }
#if N > 2
  :: atomic { MAY_DIE(2) }
  :: atomic { TELL_DEATH(2) }
  :: atomic { OVER(0) && OVER(1) && OVER(2) -> break }
#else
  :: atomic { OVER(0) && OVER(1) -> break }
#endif
  :: timeout -> assert(false)  /* some rank waits for ever */
  od;
  atomic {
    assert(ghostDied || ghostLeft || ghostLate || ghostSizes || (!aborted && ghostSteps == STEPS));
    /* one fault: what all say is about it */
    assert(FAULTS > 1 || !aborted ||
           ghostCause == (ghostDied -> DIED : (ghostLeft -> LEFT : (ghostLate -> LATE : SIZES))));
    assert(lost == 0 || ghostDead[lost - 1]);
    /* a rank that lives has run all steps, or stopped at an abort, or left of its own will */
    assert(ghostDied || ghostLeft || aborted || ghostSteps == STEPS)
  }
}
