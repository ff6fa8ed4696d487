
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Oracle - a start with the pool against a start of a copy without it

=head1 DESCRIPTION

examined_start() copies PGDATA and the archive, starts the copy with the mode
off or with the unpatched server, asks it from the first moment on, and lets it
end.  Then it starts the cluster itself in the same way, and compares:

=over

=item * whether it starts.

=item * each answer from the first moment on.  It must be one of a consistent
snapshot (Walk::Load::invariants), and not be older than the
oldest one that the copy can give; a primary gives the answer that the copy gives in the end, and no other.

=item * the contents of all tables, by sequential scans.

=item * each index, by scans (IndexCheck) and by amcheck.

=item * relation files, page by page, after both were stopped (look=pages).
Then nobody asks a primary before, because reading prunes pages.

=item * what pg_pcache verify said before, and what the log says.

=item * log lines that tell of damage, unless the copy has them as well.

=back

=cut

package Walk::Oracle;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Path qw(remove_tree make_path);
use Time::HiRes qw(sleep time);

use LibraryPool;
use Walk::Ask;
use Walk::Compare;
use Walk::Util;

our @EXPORT = qw(examined_start judge_restart make_twin run_twin end_twin compare_with_twin bad_of_copy report);

# What is wrong with a cluster.  If WAL was lost, its files may be ahead of what
# is left of it, on any server; and index entries of pages that were read as
# zeros are marked as dead by any server.  Then only what the copy does not have.
sub report
{
	my ($c, @bad) = @_;
	@bad = grep { !is_dead_entry($c, $_) } @bad;
	my $doubtful = $c->{lossy} || $c->{zeroed};
	return if $doubtful && !$c->{copy_bad};

	# it depends on which page is asked for first; the copy may have it in place of any other
	my $unflushed = qr/xlog flush request \S+ is not satisfied/;
	return if $c->{lossy} && grep { /$unflushed/ } @{ $c->{copy_bad} };
	@bad = grep { !/$unflushed/ } @bad if $c->{lossy};
	my %known = map { blur($_) => 1 } @{ $doubtful ? $c->{copy_bad} : [] };
	$c->{walk}->problem("$c->{name}: $_") for grep { !$known{ blur($_) } } @bad;
	return;
}

# Whether that is an index entry of a page that was read as zeros.  The mark of
# a dead entry is a hint: without full_page_writes WAL has no image with it, so
# it depends on whether the page was written before the crash, and the copy need
# not have what the pool kept.  All other rows have to be found by the index.
sub is_dead_entry
{
	my ($c, $problem) = @_;
	my @zeroed = sort keys %{ $c->{walk}{zeroed_blocks} // {} } or return 0;
	return scalar grep { $_ == $1 } @zeroed
	  if $problem =~ /^amcheck: .*heap tuple \((\d+),\d+\) from table "victim" lacks matching index tuple/;
	return 0 if $problem !~ /^index: postgres: victim: .*by sequential scan \((\d+),.*by btree index victim_pkey \((\d+),/;
	my $missing = $1 - $2;
	my $rows = $c->sql('SELECT count(*) FROM victim WHERE (ctid::text::point)[0] IN (' . join(', ', @zeroed) . ')');
	return $missing > 0 && $missing <= $rows;
}

# For run_twin(): note what is wrong with the copy of a cluster.  Nothing is known if it cannot
# answer, and not what was wrong with the one before.
sub bad_of_copy
{
	my ($c) = @_;
	delete $c->{copy_bad};
	return sub { $c->{copy_bad} = [@_]; return };
}

# What a check finds.  A cluster that has lost WAL may not be able to answer it.
sub what_is_wrong
{
	my ($c, $check) = @_;
	my @bad = eval { $check->($c) };
	die $@ if $@ && !$c->{lossy};
	return @bad;
}

sub blur { my ($text) = @_; $text =~ s/\d+/N/g; return $text; }


# A copy of a cluster that is down, to be started without the pool.
sub make_twin
{
	my ($c, %how) = @_;
	my $w = $c->{walk};
	my $name = "$c->{name}-copy";
	$c->{twin_port} //= $w->{port}++;
	remove_tree("$w->{dir}/$name");
	my $t = Walk::Cluster->new($w, $name, (map { $_ => $c->{$_} } qw(role upstream stream recovery target damaged tolerant clean lossy zeroed)));
	$t->{port} = $c->{twin_port};
	$t->{copy} = 1;
	$t->{conf} = { %{ $c->{conf} }, 'pcache.mode' => 'off', archive_command => "'/bin/true'" };
	$t->{archive} = "$t->{dir}/archive";
	copy_dir($c->{out}, $c->{data}, $t->{data});
	copy_dir($c->{out}, $w->{archive}, $t->{archive}, '-l');
	unlink "$t->{data}/postmaster.pid";
	$t->{binary} = $how{binary};
	return $t;
}

# Start a copy and ask it all; it runs afterwards, unless it ended.
sub run_twin
{
	my ($t, %how) = @_;
	my $kind = $t->{recovery} // 'none';
	my ($floor, $delayed);

	# A standby that delays what comes after consistency tells what is the
	# oldest answer that it could give.
	$t->spawn(bin => $t->{binary}, conf => { %{ $how{conf} // {} }, $kind eq 'standby' ? (recovery_min_apply_delay => '1h') : () });
	my $seen = watch($t, goal => $kind eq 'standby' ? undef : $how{goal}, quiet => $how{quiet});
	if ($kind eq 'standby' && $seen->{end} eq 'standby')
	{
		$floor = $seen->{answers}[0];
		$delayed = 1;
		$t->{run_conf} = $how{conf};
		$t->reload('recovery_min_apply_delay', $t->{conf}{recovery_min_apply_delay} // '0');
		$seen = watch($t, goal => $how{goal});
	}
	if ($how{quiet} && $seen->{end} eq 'primary')
	{
		# files as recovery leaves them; then once more, to be asked
		$t->stop('fast');
		copy_dir($t->{out}, $t->{data}, "$t->{dir}/data-recovered");
		my $log = $t->log_since;
		$t->spawn(bin => $t->{binary}, conf => $how{conf});
		$seen = watch($t);
		$t->{first_log} = $log;
	}

	# none if the startup process held locks all the time; on the way to a target it
	# is up to the machine how far replay is when the first question comes
	$seen->{floor} = $delayed ? $floor : $kind eq 'targeted' ? undef : $seen->{answers}[0];
	if ($t->{up} && $seen->{end} !~ /^(?:hangs|waits)$/)
	{
		$seen->{contents} = eval { contents($t) };
		die $@ if $@ && !$t->{lossy};
	}
	if ($how{bad} && ($t->{lossy} || $t->{zeroed}) && $t->{up} && $seen->{end} !~ /^(?:hangs|waits)$/)
	{
		# files that are ahead of what is left of WAL may keep it from answering
		my @bad = eval { (check_invariants($t), check_indexes($t)) };
		die $@ if $@ && !$t->{lossy};
		$how{bad}->(@bad) if !$@;
	}
	$t->{seen} = $seen;
	return $seen;
}

sub end_twin
{
	my ($t) = @_;
	$t->kill_all if $t->{up};
	remove_tree($t->{dir}) if !$t->{walk}{failed};
	return;
}

=pod

=item examined_start(cluster, conf => settings, look => "answers" or "pages", binary => "ours" or "stock")

The cluster runs afterwards, unless neither it nor the copy starts, or its
recovery target ends in a shutdown.

=cut

sub examined_start
{
	my ($c, %how) = @_;
	my $w = $c->{walk};
	my $kind = $c->{recovery} // 'none';
	my $quiet = $how{look} eq 'pages' && $kind eq 'none';
	my $goal = $kind eq 'standby' ? goal_of($c) : undef;
	my $verdict = $c->verify;
	my $left = look_at_killed($c);
	my $t = make_twin($c, binary => $how{binary});
	my $copy = run_twin($t, goal => $goal, conf => $how{conf}, quiet => $quiet, bad => bad_of_copy($c));
	$copy->{page_dir} = "$t->{dir}/data-recovered" if $quiet;
	$t->kill_all if $t->{up} && $how{look} ne 'pages';

	$c->spawn(conf => $how{conf}, limited => 1);
	my $seen = watch($c, goal => $goal, quiet => $quiet);

	# who compares all may have more hint bits logged than there is room for
	$c->limit_wal;
	my $text = $c->log_since;
	if ($seen->{end} eq 'exit' && $copy->{end} ne 'exit')
	{
		my ($why) = reverse $text =~ /(FATAL: .*|PANIC: .*)/g;
		$why //= "exit code $c->{exit}";
		$w->problem("$c->{name}: does not start, but its copy does: $why");
		end_twin($t);
		return;
	}
	if ($seen->{end} eq 'waits' && $copy->{end} ne 'waits')
	{
		$w->problem("$c->{name}: waits for WAL, but its copy does not");
		$c->kill_all;
		end_twin($t);
		return;
	}
	$w->say("$c->{name}: " . join(' ', $c->outcome($text)) . "; $seen->{end}, $seen->{asked} answers" . (@{ $seen->{answers} } ? " to @{ $seen->{answers}[-1] }" : "") . "; copy: $copy->{end}");
	if ($copy->{end} eq 'hangs')
	{
		# pages that need WAL which is gone cannot be written, and nothing goes on
		die "$t->{name} hangs at its start\n" if $t->log_since !~ /xlog flush request/;
		$w->problem("$c->{name}: is a $seen->{end}, but its copy hangs") if $seen->{end} ne 'hangs';
		$w->say("$c->{name}: neither gets on");
		$c->kill_all if $c->{up};
		$c->{ended} = 'dead';
		end_twin($t);
		return;
	}
	$w->problem("$c->{name}: hangs at its start") if $seen->{end} eq 'hangs';
	if ($copy->{end} eq 'waits')
	{
		$w->problem("$c->{name}: is a $seen->{end}, but its copy waits for WAL") if $seen->{end} ne 'waits';
		$w->say("$c->{name}: both wait for WAL");
		$c->kill_all if $c->{up};
		end_twin($t);
		return;
	}
	if ($copy->{end} eq 'exit')
	{
		if ($seen->{end} ne 'exit')
		{
			my ($why) = reverse $t->log_since =~ /(FATAL: .*|PANIC: .*)/g;
			$w->problem("$c->{name}: starts, but its copy does not: " . ($why // "exit code $t->{exit}"));
		}
		$c->{ended} = $t->{exit} eq '0' ? 'target' : 'dead';
		$w->say("$c->{name}: neither starts: $c->{ended}");
		end_twin($t);
		return;
	}
	judge_killed($c, $left, $text) if $left && $seen->{end} ne 'hangs';
	compare_verdict($c, $verdict, $text) if $c->{conf}{'pcache.mode'} ne 'off' && $seen->{end} ne 'hangs';
	compare_with_twin($c, $t, $seen, $text, look => $how{look}, goal => $goal, conf => $how{conf});
	end_twin($t);
	return;
}

# What a server has left that was killed in mode always, and how it ended,
# as far as that is known.
sub look_at_killed
{
	my ($c) = @_;
	my $ending = delete $c->{ending};
	# the sums tell, and the copy whether that is right
	return if delete $c->{power_lost};
	return if $c->{without} && ($c->{broken} // '') ne '' || $c->{conf}{'pcache.mode'} eq 'off';
	my $left = what_is_left($c->{data}, "$c->{pool}/pool") // return;
	return { %$left, ending => $ending };
}

# A start has kept just what it should, and no page that its file contradicts.
sub judge_killed
{
	my ($c, $left, $text) = @_;
	my $w = $c->{walk};
	my ($line) = $c->outcome($text);
	my $short = shortened($text);
	$w->{totals}{'starts with young pages'}++ if $short->{young};
	$w->{totals}{'records skipped'} += $short->{skipped};
	$w->{totals}{'recovery not shortened: WAL could not be read so far'}++ if $short->{refused};
	if ($line =~ /^kept/)
	{
		# the file of that table was damaged while the server was down
		my @wrong = grep { !$c->{damaged} || !/ of \Q$w->{victim_path}\E: / } @{ $left->{wrong} };
		$w->problem("$c->{name}: a page that is kept is not what its file has: $_") for @wrong[ 0 .. ($#wrong > 3 ? 3 : $#wrong) ];
		$w->{totals}{'pages compared with their files'} += $left->{kept};
	}
	return if $c->{without} || !$left->{ending} || ($c->{recovery} // '') eq 'targeted';
	my ($wrong, $what) = judge_start($left, $line, short => may_be_short($c) || $short->{young} ? $short : undef, killed_at => $c->{ended_at});
	$wrong = $line =~ /^kept [1-9]/ ? $line : undef if $left->{ending} eq 'fault';
	$w->{totals}{ $left->{ending} eq 'fault' ? 'cold after a fault' : $what }++;
	$w->problem("$c->{name}: after a $left->{ending}: $wrong; it was to keep $left->{kept} of $left->{found}") if defined $wrong;
	return;
}

# May this start keep young pages?
sub may_be_short
{
	my ($c) = @_;
	my %conf = (%{ $c->{conf} }, %{ $c->{run_conf} // {} });
	return ($conf{'pcache.recovery'} // 'full') eq 'short' && !$c->{recovery};
}

# The same of a server that has begun anew by itself.
sub judge_restart
{
	my ($c, $by, $line) = @_;
	return if !$by || $c->{without} || $c->{conf}{'pcache.mode'} ne 'always' || $c->{run_plain} || ($c->{recovery} // '') eq 'targeted';
	my $late = may_be_cold($line);
	my $right = $by eq 'fault' ? $line =~ /^starting cold/ : $line =~ /^kept \d/ || $late || $line =~ /^starting cold: .*may have been read with/;
	$c->{walk}{totals}{ "restart after a $by: " . ($line =~ /^kept/ ? 'warm' : 'cold') }++;
	$c->{walk}->problem("$c->{name}: restart after a $by: $line") if !$right;
	return;
}

# A server that runs and was watched since its start, against what the copy said.
sub compare_with_twin
{
	my ($c, $t, $seen, $text, %how) = @_;
	my $w = $c->{walk};
	my $copy = $t->{seen};
	my $kind = $c->{recovery} // 'none';
	return if $seen->{end} eq 'hangs';

	if ($how{look} eq 'pages' && $kind eq 'none')
	{
		$c->stop('fast');
		compare_pages($c, $copy->{page_dir}, ($copy->{contents} // {})->{paths});
		compare_pool($c);
		$c->spawn(conf => $how{conf});
		$seen = watch($c);
		$text .= $c->log_since;
	}
	compare_logs($c, $t, $text);
	return if !$c->{up};
	$w->problem("$c->{name}: is a $seen->{end} now, its copy a $copy->{end}") if $seen->{end} ne $copy->{end};
	compare_answers($c, $seen, $copy);

	my $contents = eval { contents($c) };
	die $@ if $@ && !$c->{lossy};
	my $same = $contents && $copy->{contents} && $contents->{lsn} eq $copy->{contents}{lsn};
	$w->{totals}{ $same ? 'starts compared' : 'starts not compared: other position, or locked' }++;
	compare_contents($c, $contents, $copy->{contents}) if $same;
	report($c, what_is_wrong($c, \&check_invariants));
	report($c, what_is_wrong($c, \&check_indexes)) if !$w->{failed};

	if ($how{look} eq 'pages' && $kind eq 'standby' && $same && defined $how{goal} && $seen->{lsn} >= $how{goal} && !$w->{failed})
	{
		standby_pages($c, $t, $copy);
	}
	return;
}

# Both standbys replay a checkpoint and stop: then all is in the files.
sub standby_pages
{
	my ($c, $t, $copy) = @_;
	my $w = $c->{walk};
	my $root = $c;
	$root = $w->{clusters}{ $root->{upstream} } while $root && $root->{up} && $root->{role} eq 'standby' && $root->{upstream};
	return if !$root || !$root->{up} || $root->{role} ne 'primary' || !$t->{up};
	for my $x ($c, $t)
	{
		# one that has another history may be ahead, but does not follow
		return if $x->sql('SELECT count(*) FROM pg_stat_wal_receiver WHERE status = \'streaming\'') != 1;
	}
	$root->sql('CHECKPOINT');
	my $goal = $root->sql(q{SELECT pg_current_wal_flush_lsn() - '0/0'});
	for my $x ($c, $t)
	{
		my $deadline = time + 10;
		sleep 0.01
		  while $x->sql(q{SELECT coalesce(pg_last_wal_replay_lsn() - '0/0', 0)}) < $goal && time < $deadline;
		return if $x->sql(q{SELECT pg_last_wal_replay_lsn() - '0/0'}) < $goal;
	}
	$_->stop('fast') for $c, $t;
	$w->{totals}{'standbys compared by page'}++;
	compare_pages($c, $t->{data}, ($copy->{contents} // {})->{paths});
	compare_pool($c);
	$c->spawn;
	my $seen = watch($c, goal => $goal);
	my $forked = qr/FATAL: .*requested timeline \d+ (?:is not a child|does not contain minimum recovery point)/;
	if ($seen->{end} eq 'exit' && ($c->{lossy} || $c->log_since =~ $forked))
	{
		# it may have replayed WAL of a timeline that is not its own, or another server
		# was promoted meanwhile, from an earlier point
		$c->{dead} = 1;
		$w->say("$c->{name}: does not start again");
		return;
	}
	$w->problem("$c->{name}: $seen->{end} after a clean stop") if $seen->{end} ne 'standby';
	compare_answers($c, $seen, { answers => [], errors => [], end => 'standby', floor => undef });
	return;
}

1;
