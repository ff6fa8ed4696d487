/*-------------------------------------------------------------------------
 *
 * pcache_control.c
 *	  Is pg_control what the pool's own server last made of it?
 *
 * Any other program that changes the cluster, or that only begins to recover
 * it, writes pg_control before it writes a data file.
 *
 * Copyright (c) 2026, the persistent-cache developers
 *
 * IDENTIFICATION
 *	  src/backend/storage/buffer/pmem/pool/pcache_control.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "common/hashfn.h"
#include "storage/pcache_error.h"
#include "storage/pcache_witness.h"

/*
 * update_controlfile() takes the time after a pending half has been stored.
 * It seldom takes it a second later, and then the start is cold.
 */
#define MAX_CONTROL_DELAY	1	/* seconds */

/* Was the last server of the cluster shut down? */
bool
PCacheControlIsShutDown(const ControlFileData *control)
{
	return control->state == DB_SHUTDOWNED || control->state == DB_SHUTDOWNED_IN_RECOVERY;
}

uint32
PCacheControlSeenCrc(const PCacheControlSeen *seen)
{
	return PCacheCrcOf(seen);
}

/* All of pg_control but what update_controlfile() sets itself. */
static uint64
ContentsHash(const ControlFileData *control)
{
	ControlFileData copy;

	/* with its padding, which is written and read like the rest */
	memcpy(&copy, control, sizeof(copy));
	copy.time = 0;
	copy.crc = 0;
	return hash_bytes_extended((const unsigned char *) &copy,
							   offsetof(ControlFileData, crc), 0);
}

static PCacheControlSeen
MakeSeen(const ControlFileData *control, uint64 number, uint64 completed_epoch,
		 int64 time, uint32 control_crc)
{
	PCacheControlSeen seen = {0};

	seen.number = number;
	seen.contents = ContentsHash(control);
	seen.checkpoint = control->checkPoint;
	seen.completed_epoch = completed_epoch;
	seen.time = time;
	seen.control_crc = control_crc;
	seen.crc = PCacheControlSeenCrc(&seen);
	return seen;
}

/*
 * The half that goes with an update of pg_control that is about to be made, at
 * a time in seconds since 1970.
 */
PCacheControlSeen
PCacheControlPending(const ControlFileData *control, uint64 number,
					 uint64 completed_epoch, int64 now)
{
	return MakeSeen(control, number, completed_epoch, now, 0);
}

/* The half that goes with pg_control as it is on disk. */
PCacheControlSeen
PCacheControlConfirmed(const ControlFileData *control, uint64 number,
					   uint64 completed_epoch)
{
	return MakeSeen(control, number, completed_epoch, control->time, control->crc);
}

/*
 * Read both halves from an open pool.  What cannot be read agrees with no
 * pg_control.
 */
void
PCacheReadControlSeen(int fd, PCacheControlSeen seen[2])
{
	if (!PCacheReadExact(fd, seen, 2 * sizeof(PCacheControlSeen),
						 PCACHE_CONTROL_OFFSET))
		memset(seen, 0, 2 * sizeof(PCacheControlSeen));
}

static bool
IsIntact(const PCacheControlSeen *seen)
{
	return seen->number != 0 && seen->crc == PCacheControlSeenCrc(seen);
}

/*
 * Is pg_control what the pool's server last wrote, or what it was about to
 * write when it died?  Returns the half that says so, or NULL.
 *
 * The confirmed half tells exactly.  The pending one does not know which CRC
 * pg_control got, so it counts only if nothing is known to have been confirmed
 * since, and only for a pg_control that was written at the same time.
 */
const PCacheControlSeen *
PCacheControlAsSeen(const PCacheControlSeen seen[2],
					const ControlFileData *control)
{
	const PCacheControlSeen *pending = &seen[PCACHE_CONTROL_PENDING];
	const PCacheControlSeen *confirmed = &seen[PCACHE_CONTROL_CONFIRMED];
	uint64		contents = ContentsHash(control);

	if (IsIntact(confirmed) &&
		confirmed->contents == contents &&
		confirmed->time == control->time &&
		confirmed->control_crc == control->crc)
		return confirmed;

	/* the difference is unsigned, so an earlier time does not do either */
	if (IsIntact(pending) &&
		(!IsIntact(confirmed) || pending->number > confirmed->number) &&
		pending->contents == contents &&
		(uint64) control->time - (uint64) pending->time <= MAX_CONTROL_DELAY)
		return pending;
	return NULL;
}
