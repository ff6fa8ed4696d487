
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::PowerCut - what of a pool had reached the media when the power failed?

=head1 DESCRIPTION

A pool on tmpfs is made to look like persistent memory by the shim in
tests/powercut, which notes what was flushed.  The server and pg_pcache are run
with powercut_environment(); after they are killed, cut_power() makes of the pool
what the media may have had.

=cut

package PCache::PowerCut;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  powercut_missing
  powercut_environment
  cut_power
);

my $shim = $ENV{PCACHE_POWERCUT} // '';

# Why there can be no power cuts here; undef if there can be.
sub powercut_missing
{
	return -e "$shim/libpowercut.so" ? undef : 'no power cut shim';
}

# The environment that notes what is flushed of the pool in a directory, which is
# made: names and values.
sub powercut_environment
{
	my ($dir, $seed) = @_;

	mkdir $dir, 0700;
	return (LD_PRELOAD => "$shim/libpowercut.so", PMEM_IS_PMEM_FORCE => 1,
		POWERCUT_DIR => $dir, POWERCUT_IMAGE => "$dir.image", POWERCUT_SEED => $seed);
}

# Leave in the pool what had reached the media, by a seed.
sub cut_power
{
	my ($dir, $seed) = @_;

	system_or_bail("$shim/powercut", "$dir/pool", "$dir.image", $seed);
	return;
}

1;
