
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::State - what does every part of the test know of the run and of its round?

=head1 DESCRIPTION

The variables are set by torture.pl for the run, and by Torture::Round for a
round.

  %opt         the options of torture.pl
  %set         those of them that fix what the seed would choose: name => value
  $bin         directory of the server's programs
  $server      what kind of server it is: ServerKind
  $work        directory that is the test's own, and of the sockets
  %totals      what was covered and counted: text => number
  $dir         directory of the round, with data, pool, a, b, pool-a and logs
  $port        of its servers, which run one at a time
  $round_seed  its seed
  $dram        true if the pool is in memory that a power cut empties
  @problems    what is wrong; a round without any has passed

=cut

package Torture::State;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

our @EXPORT = qw(%opt %set $bin $server $work %totals $dir $port $round_seed $dram @problems say_line
  problem);

our (%opt, %set, $bin, $server, $work, %totals);
our ($dir, $port, $round_seed, $dram, @problems);

# Print a line of the report.
sub say_line { print "$_[0]\n"; return; }

# Something is wrong: say so, and have the round fail.
sub problem { push @problems, $_[0]; say_line("    FAIL: $_[0]"); return; }

1;
