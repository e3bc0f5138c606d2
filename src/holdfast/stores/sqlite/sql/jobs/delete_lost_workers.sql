DELETE FROM holdfast_lost_workers WHERE lost_at < :now - 3600000000
